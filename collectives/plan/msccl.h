// Plans as MSCCL XML, the format that msccl-tools writes and the MSCCL runtime reads. What maps to what, and what is
// refused: docs/plan_format.md, "MSCCL XML".
#pragma once

#include <string>
#include <string_view>

#include "collectives/plan/plan.h"
#include "collectives/plan/text.h"

namespace lockstep::plan {

// Parses an algorithm. Throws a usage Error of one line that names `source`, the line, what is there and what is
// allowed: if the text is no XML, says something that a Plan cannot, or its thread blocks race or wait forever. What
// the plan does otherwise is check()'s to judge. Fills `lines`, if given.
Plan parse_msccl(std::string_view text, std::string_view source = "plan", StepLines* lines = nullptr);

// The plan, which must have passed the checker, with the protocol Simple, for all sizes. Throws a usage Error if MSCCL
// has no such collective.
std::string to_msccl(const Plan& plan);

// Parses a plan in either form: one that begins with '<' is MSCCL XML, any other is text.h's.
Plan parse_any_plan(std::string_view text, std::string_view source = "plan", StepLines* lines = nullptr);

}  // namespace lockstep::plan
