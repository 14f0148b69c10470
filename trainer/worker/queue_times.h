// When tasks ran that were only queued when their calls returned: by events around each of them in its stream. Of tasks
// that are captured, by what each launch of the graph records.
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
  // `streams`: of each task; none: nothing is queued, and nothing recorded. Steps begin in `first`. What is passed
  // outlives this.
  QueueTimes(core::Device& device, core::Stream* first, std::vector<core::Stream*> streams);

  // Nothing is queued: the time from which tasks are timed is now, or that of the launch if the step is captured.
  void begin_step(bool captured = false);
  // Where the step begins, and of a task that has been queued in this step: for streams that wait for it.
  core::Event& begin_of_step() const { return *reached_start_; }
  core::Event& end_of(std::uint32_t task) const { return captured_ ? *tasks_[task].reached : *tasks_[task].end; }
  void begin(std::uint32_t task);
  void end(std::uint32_t task);

  // After the queue is done: whether the task was timed in this step, and when it ran.
  bool timed(std::uint32_t task) const { return !tasks_.empty() && tasks_[task].step == step_; }
  schedules::TaskSpan span_of(std::uint32_t task) const;

 private:
  struct Task {
    std::unique_ptr<core::Event> begin;
    std::unique_ptr<core::Event> end;
    std::unique_ptr<core::Event> reached;  // the end, where captured work waits for it: it has no time then
    std::int64_t step = 0;
  };
  core::Stream* const first_;
  const std::vector<core::Stream*> streams_;
  std::unique_ptr<core::Event> start_;
  std::unique_ptr<core::Event> reached_start_;
  bool captured_ = false;
  std::vector<Task> tasks_;  // none without streams
  std::int64_t step_ = 0;
};

}  // namespace lockstep::trainer
