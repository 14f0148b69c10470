// When tasks ran that were only queued when their calls returned: by events around each of them in the queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/device.h"
#include "schedules/step/timeline.h"

namespace lockstep::trainer {

class QueueTimes {
 public:
  // Without a queue nothing is recorded. What is passed outlives this.
  QueueTimes(core::Device& device, core::Stream* queue, std::size_t num_tasks);

  void begin_step();  // nothing is queued: the time from which tasks are timed is now
  void begin(std::uint32_t task);
  void end(std::uint32_t task);

  // After the queue is done: whether the task was timed in this step, and when it ran.
  bool timed(std::uint32_t task) const { return !tasks_.empty() && tasks_[task].step == step_; }
  schedules::TaskSpan span_of(std::uint32_t task) const;

 private:
  struct Task {
    std::unique_ptr<core::Event> begin;
    std::unique_ptr<core::Event> end;
    std::int64_t step = 0;
  };
  core::Stream* const queue_;
  std::unique_ptr<core::Event> start_;
  std::vector<Task> tasks_;  // none without a queue
  std::int64_t step_ = 0;
};

}  // namespace lockstep::trainer
