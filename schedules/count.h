// The costs of a schedule, counted from its lists and, where times matter, from its timeline. docs/metrics.md pins the
// definitions; published numbers disagree where they do not say which they mean.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "schedules/play.h"
#include "schedules/schedule.h"

namespace lockstep::schedules {

// The tokens of a slice where microbatches are cut; a whole microbatch counts 1. unit_of(): how many make one
// microbatch's activations of a rank's share of the model.
std::int64_t tokens_of(const Schedule& schedule, std::int32_t microbatch);
double unit_of(const Schedule& schedule);

// The most that a rank's evictions lie on the rank that they go to; `size`: of what an action moves.
double most_evicted(const Schedule& schedule, std::size_t rank, const std::function<double(const Action&)>& size);

// For a rank, the largest number of microbatches whose activations are there, in units of one microbatch's activations
// of a rank's share of the model; a stage counts 1 / chunks, and a slice its part of the tokens.
struct PeakActivations {
  double until_weight_gradient = 0;  // whole from F until B or I, and from there until W the share that W needs
  double until_input_gradient = 0;   // from F until B or I: what I leaves for W counts nothing
};

struct RankCounts {
  PeakActivations peak = {};   // what is held for another rank among it
  std::int64_t sends = 0;      // of activations and gradients, between stages
  std::int64_t evictions = 0;  // of what forwards have kept; each comes back
};
// What is evicted lies on both ranks until the computation after EVICT has ended, and from FETCH on.
// `w_share`: the part of a microbatch's activations that its weight gradient still needs after I (MemoryLimit).
std::vector<RankCounts> count_ranks(const Schedule& schedule, double w_share = 1);

// Where a rank gets messages of another in a different order than they were sent, a channel without tags fails.
struct Ordering {
  std::int32_t pairs = 0;  // of sender and receiver
  std::int32_t pairs_out_of_order = 0;
  std::int32_t set_aside = 0;  // the most messages of a pair that wait while a later one is taken
};
Ordering count_ordering(const Schedule& schedule);

struct Spans {
  double makespan = 0;  // the last end less the first start, over all ranks
  double own = 0;       // the largest of a rank's own last end less own first start; no barrier at the optimizer
  double work = 0;      // the largest of a rank's busy times
  std::vector<double> of_rank = {};  // own span of each
};
Spans spans_of(const Schedule& schedule, const Times& times, const Timeline& timeline);

// Four definitions that are all called bubble. Each is time in which the busiest rank does nothing over something.
struct Bubbles {
  double of_ideal = 0;      // (makespan - work) / work: Narayanan et al. 2021, section 2.2
  double of_makespan = 0;   // (makespan - work) / makespan: GPipe, Chimera
  double of_own_span = 0;   // (own - work) / own: the tables of Qi et al. 2023
  double own_of_ideal = 0;  // (own - work) / work: the statements of Qi et al. 2024 ("p / 2m")
};
Bubbles bubbles_of(const Spans& spans);

}  // namespace lockstep::schedules
