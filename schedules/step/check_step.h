// Checks that a step can run, whatever made it: lowering, passes or a test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

struct StepProblem {
  std::int32_t rank = 0;
  std::uint32_t task = 0;  // index in the rank's tasks; their number if no task is concerned
  std::string what;
};

// Returns at most `limit` problems; empty if the step can run. Edges point back; each message has one sender and one
// receiver that agree; the members of a group issue the same collectives in each lane, for the same parts of copies of
// a stage; units are gathered and freed alternately; activations are made before they are used; and all lanes of all
// ranks finish.
std::vector<StepProblem> check_step(const Step& step, std::size_t limit = 10);

// "rank 1, task 7 (0F1): ..."
std::string text_of(const Step& step, const StepProblem& problem);

// Throws core::Error(internal) with the first problem: steps are made by this library, not given by users.
void check_step_or_throw(const Step& step);

}  // namespace lockstep::schedules
