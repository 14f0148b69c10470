// A schedule played out in virtual time: each rank takes its list in order, every action as early as what it needs is
// there. Exact, and linear in the number of actions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedules/needs.h"
#include "schedules/schedule.h"

namespace lockstep::schedules {

// In any one unit. F, I and W are for one microbatch on a rank's whole share of the model: a rank with v stages runs
// each in 1/v of that. A full backward takes I + W and gives its input gradient at its end; fused actions take the sum
// of their parts.
struct Times {
  double forward = 1;
  double input_gradient = 1;
  double weight_gradient = 1;
  double message = 0;  // from its producer's end to its arrival on another rank; occupies nobody
  // The part of a forward and of an input gradient that goes into causal attention: a later slice has more of it.
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

// Throws core::Error(usage) where ranks wait for each other for ever, with the cycle.
Timeline play(const Schedule& schedule, const Times& times);

// A rank that stands at an action whose need nobody will make.
struct Waiter {
  std::int32_t rank = 0;
  std::size_t index = 0;  // in its list
  Need need = {};
};

// Ranks that wait for each other in a circle, each for the next one and the last for the first; empty: all get to their
// end.
std::vector<Waiter> waiting_circle(const Schedule& schedule);
// "rank 0 at 0B0 needs the gradient of stage 1, rank 1 at ..."
std::string text_of(const Schedule& schedule, const std::vector<Waiter>& circle);

}  // namespace lockstep::schedules
