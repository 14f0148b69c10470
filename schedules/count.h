// The costs of a schedule, counted from its lists and, where times matter, from its timeline. docs/metrics.md has the
// definitions: published numbers differ where papers use different ones.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "schedules/play.h"
#include "schedules/schedule.h"

namespace lockstep::schedules {

// Weight of a (sliced) microbatch in activation counts: the tokens of its slice, or 1 for a whole microbatch. unit_of()
// is the sum of these weights that makes up one microbatch's activations of a rank's share of the model.
std::int64_t tokens_of(const Schedule& schedule, std::int32_t microbatch);
double unit_of(const Schedule& schedule);

// Peak of what a rank's evictions hold on the receiving rank; `size` gives the size of what an action moves.
double most_evicted(const Schedule& schedule, std::size_t rank, const std::function<double(const Action&)>& size);

// Largest number of microbatches whose activations a rank holds, in units of one microbatch's activations of a rank's
// share of the model: a stage counts 1 / chunks, a slice its share of the tokens.
struct PeakActivations {
  double until_weight_gradient = 0;  // everything from F until B or I, then until W the share that W needs
  double until_input_gradient = 0;   // from F until B or I; what I leaves for W does not count
};

struct RankCounts {
  PeakActivations peak = {};   // includes what is held for another rank
  std::int64_t sends = 0;      // messages of activations and gradients between stages
  std::int64_t evictions = 0;  // moves of kept activations; each is fetched back
};
// Evicted activations count on both ranks until the computation after EVICT has ended, and again from FETCH on.
// `w_share`: share of a microbatch's activations that its weight gradient still needs after I (MemoryLimit).
std::vector<RankCounts> count_ranks(const Schedule& schedule, double w_share = 1);

// Order of messages: a channel without tags fails where a rank receives in another order than its peer sends.
struct Ordering {
  std::int32_t pairs = 0;  // (sender, receiver) pairs that exchange messages
  std::int32_t pairs_out_of_order = 0;
  std::int32_t set_aside = 0;  // most messages of a pair that wait while a later one is received
};
Ordering count_ordering(const Schedule& schedule);

struct Spans {
  double makespan = 0;  // last end minus first start, over all ranks
  double own = 0;       // largest span (last end minus first start) of one rank; assumes no barrier at the optimizer
  double work = 0;      // busy time of the busiest rank
  std::vector<double> of_rank = {};  // own span of each rank
};
Spans spans_of(const Schedule& schedule, const Times& times, const Timeline& timeline);

// Four definitions that are all called bubble: idle time of the busiest rank, divided by different times.
struct Bubbles {
  double of_ideal = 0;      // (makespan - work) / work: Narayanan et al. 2021, section 2.2
  double of_makespan = 0;   // (makespan - work) / makespan: GPipe, Chimera
  double of_own_span = 0;   // (own - work) / own: the tables of Qi et al. 2023
  double own_of_ideal = 0;  // (own - work) / work: the statements of Qi et al. 2024 ("p / 2m")
};
Bubbles bubbles_of(const Spans& spans);

}  // namespace lockstep::schedules
