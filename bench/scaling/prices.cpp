#include "bench/scaling/prices.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/statistics.h"
#include "simulator/contention/contended.h"

namespace lockstep::scaling {

using schedules::Step;
using schedules::StepTimeline;
using schedules::Task;
using schedules::TaskSpan;

PieceKey key_of(const Task& task, std::int32_t rank) {
  const bool collective = task.comm != schedules::Comm::none;
  const std::int32_t place = task.stage >= 0 ? -1 : collective ? task.peer : rank;
  return {task.op, task.lane, task.stage, task.part, task.what, place};
}

std::vector<SlotSpans> spans_of(const std::vector<Slot>& slots, const StepTimeline& timeline) {
  const auto span_of = [&](const TaskPlace& place) {
    return timeline[static_cast<std::size_t>(place.rank)][place.task];
  };
  std::vector<SlotSpans> all;
  for (const Slot& slot : slots) {
    SlotSpans& spans = all.emplace_back();
    for (const TaskPlace& place : slot.kernels) spans.kernels.emplace_back(place, span_of(place));
    for (const TaskPlace& place : slot.other) spans.other.emplace_back(place, span_of(place));
    spans.collective = slot.collective;
    for (const TaskPlace& place : slot.collective) {
      spans.collective_span.start_ps = std::max(spans.collective_span.start_ps, span_of(place).start_ps);
      spans.collective_span.end_ps = std::max(spans.collective_span.end_ps, span_of(place).end_ps);
    }
  }
  return all;
}

void Prices::add(const Step& step, const std::vector<SlotSpans>& slots) {
  const auto put = [&](const TaskPlace& place, const TaskSpan& span) {
    const Task& task = step.of_rank[static_cast<std::size_t>(place.rank)].tasks[place.task];
    samples_[key_of(task, place.rank)].push_back(static_cast<double>(span.end_ps - span.start_ps));
  };
  for (const SlotSpans& slot : slots) {
    LOCKSTEP_CHECK(slot.kernels.size() + slot.other.size() + (slot.collective.empty() ? 0 : 1) == 1,
                   "a slot has a single piece");
    for (const auto& [place, span] : slot.kernels) put(place, span);
    for (const auto& [place, span] : slot.other) put(place, span);
    // The stage of each member: with two pipes they name copies of a stage.
    for (const TaskPlace& place : slot.collective) put(place, slot.collective_span);
  }
}

std::int64_t Prices::of(const Task& task, std::int32_t rank) const {
  return std::llround(core::median(samples_.at(key_of(task, rank))));
}

Step priced(Step step, const Prices& prices) {
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    for (Task& task : step.of_rank[r].tasks) task.amount = prices.of(task, static_cast<std::int32_t>(r));
  }
  return simulator::with_whole_messages(std::move(step));
}

}  // namespace lockstep::scaling
