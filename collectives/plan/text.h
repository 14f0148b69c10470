// Plans as text: printed, parsed back to an equal plan, and drawn. The grammar is in docs/plan_format.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/plan.h"

namespace lockstep::plan {

// "recv_reduce output[1] <- 3 + input[1] after 0.4"
std::string to_text(const Step& step);
// The whole plan. Its algorithm's name must be one word (empty is printed as "-").
std::string to_text(const Plan& plan);

// [rank][lane][step]: the line of the text, from 1 on, in which the step stands.
using StepLines = std::vector<std::vector<std::vector<int>>>;

// The plan that a text says, right or wrong: what it does is for check() to judge. Throws a usage Error that names
// `source`, line and column, what is there and what is allowed. `lines`, if given: filled.
Plan parse_plan(std::string_view text, std::string_view source = "plan", StepLines* lines = nullptr);

}  // namespace lockstep::plan
