// Plays a schedule in virtual time: each rank runs its list in order, every action as soon as its inputs are there.
// Exact, and linear in the number of actions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedules/needs.h"
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
  // Share of a forward and of an input gradient that causal attention takes: later slices have more of it.
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

}  // namespace lockstep::schedules
