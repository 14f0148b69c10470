// Whether a lowered step can be run: by whom it was lowered, changed by passes or written does not matter.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

struct StepProblem {
  std::int32_t rank = 0;
  std::uint32_t task = 0;  // of the rank; its number of tasks if it is about none of them
  std::string what;
};

// Empty: it can: edges point back, each message has one sender and one receiver that agree, the members of a group
// issue the same collectives in each lane, of the same parts of copies of a stage, units are gathered and given up in
// turn, activations are made before they are used and not after, and all lanes of all ranks come to their end. At most
// `limit` problems.
std::vector<StepProblem> check_step(const Step& step, std::size_t limit = 10);

// "rank 1, task 7 (0F1): ..."
std::string text_of(const Step& step, const StepProblem& problem);

// Throws core::Error(internal) with the first problem: a step is made by us, not given by a user.
void check_step_or_throw(const Step& step);

}  // namespace lockstep::schedules
