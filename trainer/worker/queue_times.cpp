#include "trainer/worker/queue_times.h"

#include <cmath>

namespace lockstep::trainer {

QueueTimes::QueueTimes(core::Device& device, core::Stream* queue, std::size_t num_tasks) : queue_(queue) {
  if (queue_ == nullptr) return;
  start_ = device.make_event();
  tasks_.resize(num_tasks);
  for (Task& task : tasks_) {
    task.begin = device.make_event();
    task.end = device.make_event();
  }
}

void QueueTimes::begin_step() {
  ++step_;
  if (queue_ != nullptr) start_->record(*queue_);
}

void QueueTimes::begin(std::uint32_t task) {
  if (queue_ != nullptr) tasks_[task].begin->record(*queue_);
}

void QueueTimes::end(std::uint32_t task) {
  if (queue_ == nullptr) return;
  tasks_[task].end->record(*queue_);
  tasks_[task].step = step_;
}

schedules::TaskSpan QueueTimes::span_of(std::uint32_t task) const {
  const auto ps_of = [this](const core::Event& event) { return std::llround(event.us_since(*start_) * 1e6); };
  return {ps_of(*tasks_[task].begin), ps_of(*tasks_[task].end)};
}

}  // namespace lockstep::trainer
