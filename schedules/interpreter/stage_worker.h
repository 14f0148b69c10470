// The StageWorker interface: executes the tasks of one rank. The emulated device waits; the trainer runs kernels on
// tensors, passes messages to a Transport and gradients to a Collective. The interpreter (interpreter.h) decides when.
#pragma once

#include <cstdint>

#include "schedules/step/timeline.h"

namespace lockstep::schedules {

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

}  // namespace lockstep::schedules
