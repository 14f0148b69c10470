// The StageWorker seam: what does the work of one rank's tasks. An emulated device waits; a trainer runs kernels on
// tensors, gives messages to a Transport and gradients to a Collective. The interpreter (interpreter.h) decides when.
#pragma once

#include <cstdint>

#include "schedules/step/timeline.h"

namespace lockstep::schedules {

// Tasks are named by their index in RankStep::tasks. begin() and ended() of a task are called by the one thread that
// has its lane; threads of a rank call side by side.
class StageWorker {
 public:
  virtual ~StageWorker() = default;

  // Begins a task. The one before it in its lane and all that it is after have ended. May do the work and return when
  // it is done, or only start it. False: not now (a queue is full); it will be asked again.
  virtual bool begin(std::uint32_t task) = 0;

  // Whether a task that was begun has ended, so that what waits for it may begin; makes progress. A device that keeps
  // the order of its queue by itself says so as soon as the order is sure, before the work is done.
  virtual bool ended(std::uint32_t task) = 0;

  // Nothing of this thread's lanes could go on just now: yields the core or sleeps a little.
  virtual void idle(int thread) = 0;

  // Returns when all that was begun is really done. Called by the rank's own thread, after the last task has ended.
  virtual void finish() = 0;

  // When a task ran; after finish().
  virtual TaskSpan span_of(std::uint32_t task) const = 0;
};

}  // namespace lockstep::schedules
