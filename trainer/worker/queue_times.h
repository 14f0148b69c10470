// Run times of tasks whose calls return once they are queued: taken by events before and after each task in its stream.
// For captured tasks, each launch of the graph records them.
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
  // `streams` has one stream per task; empty: nothing is queued or recorded. Steps begin in `first`. The arguments must
  // outlive this.
  QueueTimes(core::Device& device, core::Stream* first, std::vector<core::Stream*> streams);

  // Called while nothing is queued. Times are relative to now, or to the graph's launch if the step is captured.
  void begin_step(bool captured = false);
  // Events that streams can wait for: the start of the step, and the end of a task queued in this step.
  core::Event& begin_of_step() const { return *reached_start_; }
  core::Event& end_of(std::uint32_t task) const { return captured_ ? *tasks_[task].reached : *tasks_[task].end; }
  void begin(std::uint32_t task);
  void end(std::uint32_t task);

  // After the queue is done: whether the task was timed in this step, and its times.
  bool timed(std::uint32_t task) const { return !tasks_.empty() && tasks_[task].step == step_; }
  schedules::TaskSpan span_of(std::uint32_t task) const;

 private:
  struct Task {
    std::unique_ptr<core::Event> begin;
    std::unique_ptr<core::Event> end;
    std::unique_ptr<core::Event> reached;  // end of the task for captured work that waits for it; it has no time then
    std::int64_t step = 0;
  };
  core::Stream* const first_;
  const std::vector<core::Stream*> streams_;
  std::unique_ptr<core::Event> start_;
  std::unique_ptr<core::Event> reached_start_;
  bool captured_ = false;
  std::vector<Task> tasks_;  // empty without streams
  std::int64_t step_ = 0;
};

}  // namespace lockstep::trainer
