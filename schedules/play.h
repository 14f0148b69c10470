// Plays a schedule in virtual time: each rank runs its list in order, every action as soon as its inputs are there.
// Exact, and linear in the number of actions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "schedules/schedule.h"

namespace lockstep::schedules {

// Times in any one unit. F, I and W are for one microbatch on a rank's whole share of the model: with v stages per
// rank, each stage takes 1/v of that. A full backward takes I + W and gives its input gradient at its end; fused
// actions take the sum of their parts.
struct Times {
  double forward = 1;
  double input_gradient = 1;
  double weight_gradient = 1;
  double message = 0;  // from the end of its producer to its arrival on another rank; occupies no rank
  // Share of a forward and of an input gradient that causal attention takes: later slices have a larger share.
  double attention = 0;
};

// `slice_tokens`: as in Schedule.
double time_of(const Action& action, const Times& times, std::int32_t chunks,
               std::span<const std::int64_t> slice_tokens = {});

struct Span {
  double start = 0;
  double end = 0;
};

// When each action of each rank runs.
using Timeline = std::vector<std::vector<Span>>;

// Throws core::Error(usage) with the cycle if ranks wait for each other for ever.
Timeline play(const Schedule& schedule, const Times& times);

// A rank that is blocked at an action whose input will never be made.
struct Waiter {
  std::int32_t rank = 0;
  std::size_t index = 0;  // in its list
  Need need = {};
};

// A cycle of ranks that wait for each other, each for the next one and the last for the first; empty if all ranks
// finish.
std::vector<Waiter> waiting_cycle(const Schedule& schedule);
// "rank 0 at 0B0 needs the gradient of stage 1, rank 1 at ..."
std::string text_of(const Schedule& schedule, const std::vector<Waiter>& circle);

// The costs of a schedule, counted from its lists and, where times matter, from its timeline. docs/metrics.md has the
// definitions: published numbers differ where papers use different ones.

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
