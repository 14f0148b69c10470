// The time that each distinct piece of a step takes alone, and the step composed of such pieces.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/scaling/slots.h"
#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::scaling {

// Tasks with the same key do the same work: microbatches and replicas do not count. Op, lane, stage, part, what; for
// tasks without a stage their rank or their group.
using PieceKey = std::tuple<schedules::Op, schedules::Lane, std::int32_t, std::int32_t, std::uint8_t, std::int32_t>;
PieceKey key_of(const schedules::Task& task, std::int32_t rank);

// Times of the pieces that ran in a slot.
struct SlotSpans {
  std::vector<std::pair<TaskPlace, schedules::TaskSpan>> kernels;
  std::vector<TaskPlace> collective;
  schedules::TaskSpan collective_span;  // from its last member's arrival to its end
  std::vector<std::pair<TaskPlace, schedules::TaskSpan>> other;
};
std::vector<SlotSpans> spans_of(const std::vector<Slot>& slots, const schedules::StepTimeline& timeline);

// Picoseconds of each distinct piece: medians, from steps in which every slot was one task or one collective.
class Prices {
 public:
  void add(const schedules::Step& step, const std::vector<SlotSpans>& slots);
  std::int64_t of(const schedules::Task& task, std::int32_t rank) const;
  std::size_t size() const { return samples_.size(); }

 private:
  std::map<PieceKey, std::vector<double>> samples_;
};

// The same step with amounts in picoseconds: the times of kernels and collectives, and for a send its time together
// with its receive, which itself takes none.
schedules::Step priced(schedules::Step step, const Prices& prices);

}  // namespace lockstep::scaling
