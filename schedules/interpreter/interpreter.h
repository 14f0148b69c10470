// Runs a step in wall-clock time: each rank's lists, on a StageWorker.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/wait.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {

// The StageWorker interface: executes the tasks of one rank. The emulated device waits; the trainer runs kernels on
// tensors, passes messages to a Transport and gradients to a Collective. The interpreter decides when.

// A task is named by its index in RankStep::tasks. begin() and ended() of a task are called by the thread of its lane;
// threads of a rank call concurrently.
class StageWorker {
 public:
  virtual ~StageWorker() = default;

  // Begins a task; the previous task of its lane and all tasks that it waits for have ended. May do the work before it
  // returns, or only start it. Returns false if it cannot start now (a queue is full); it is then called again.
  virtual bool begin(std::uint32_t task) = 0;

  // Returns true if a task that was begun has ended, so that its dependents may begin; also makes progress. A device
  // that orders its own queue may return true once the order is guaranteed, before the work is done.
  virtual bool ended(std::uint32_t task) = 0;

  // Called when no lane of this thread can make progress: yields the core or sleeps briefly.
  virtual void idle(int thread) = 0;

  // Returns when all work that was begun has completed. Called by the rank's own thread after the last task has ended.
  virtual void finish() = 0;

  // When a task ran. Called after finish().
  virtual TaskSpan span_of(std::uint32_t task) const = 0;
};

// A task as text, for error messages.

// "1RECV_F2 from rank 0", "REDUCE_GRAD with group 3", "2F1".
std::string text_of(const Task& task);

// The interpreter of steps: walks a rank's tasks, lane by lane in their order, and calls a worker for each. It knows no
// schedule and no algorithm by name.
//
// A rank has one or more threads. Each polls its lanes in turn, so a lane blocks another of its thread only if the
// worker's begin() blocks. Compute on the rank's own thread and collectives on a second one give each a core; workers
// that only launch asynchronous work need one thread for all lanes.

struct InterpreterOptions {
  // Thread of each lane; 0 is the rank's own thread. Threads without tasks are not started.
  std::array<std::uint8_t, kNumLanes> thread_of = {};
  // Threads other than the rank's own sleep until a task of the rank ends, in place of StageWorker::idle(). For lanes
  // whose tasks are done when begin() returns; polling would cost the core that kernels run on.
  bool others_sleep = false;
  // All tasks except messages begin in issue order across lanes. For a single thread with blocking collectives, which
  // all ranks have to begin in the same order.
  bool in_issue_order = false;
  // Longest time without any task of the rank beginning or ending.
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
};

// Runs the tasks of `rank` and returns when each of them ran. Called by the rank's own thread, under core::run_ranks. A
// failure of any thread is raised on `abort`, which all threads of all ranks check. Past the deadline throws
// Error(timeout) with the task at which each lane of the rank is blocked and what it waits for.
std::vector<TaskSpan> run_rank(const Step& step, std::int32_t rank, StageWorker& worker, core::AbortFlag& abort,
                               const InterpreterOptions& options = {});

}  // namespace lockstep::schedules
