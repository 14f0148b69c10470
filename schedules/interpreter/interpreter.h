// The interpreter of steps: walks a rank's tasks, lane by lane in their order, and calls a worker for each. It knows no
// schedule and no algorithm by name.
//
// A rank has one or more threads. Each polls its lanes in turn, so a lane blocks another of its thread only if the
// worker's begin() blocks. Compute on the rank's own thread and collectives on a second one give each a core; workers
// that only launch asynchronous work need one thread for all lanes.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "core/gate.h"
#include "schedules/interpreter/stage_worker.h"
#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::schedules {

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
