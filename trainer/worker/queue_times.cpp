#include "trainer/worker/queue_times.h"

#include <cmath>
#include <utility>

namespace lockstep::trainer {

QueueTimes::QueueTimes(core::Device& device, core::Stream* first, std::vector<core::Stream*> streams)
    : first_(first), streams_(std::move(streams)) {
  if (first_ == nullptr) return;
  start_ = device.make_event();
  reached_start_ = device.make_event();
  tasks_.resize(streams_.size());
  for (Task& task : tasks_) {
    task.begin = device.make_event();
    task.end = device.make_event();
    task.reached = device.make_event();
  }
}

void QueueTimes::begin_step(bool captured) {
  ++step_;
  captured_ = captured;
  if (first_ == nullptr) return;
  start_->record_time(*first_);
  reached_start_->record(*first_);
}

void QueueTimes::begin(std::uint32_t task) {
  if (first_ != nullptr) tasks_[task].begin->record_time(*streams_[task]);
}

void QueueTimes::end(std::uint32_t task) {
  if (first_ == nullptr) return;
  tasks_[task].end->record_time(*streams_[task]);
  if (captured_) tasks_[task].reached->record(*streams_[task]);
  tasks_[task].step = step_;
}

schedules::TaskSpan QueueTimes::span_of(std::uint32_t task) const {
  const auto ps_of = [this](const core::Event& event) { return std::llround(event.us_since(*start_) * 1e6); };
  return {ps_of(*tasks_[task].begin), ps_of(*tasks_[task].end)};
}

}  // namespace lockstep::trainer
