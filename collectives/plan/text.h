// Plans as text: our own form, which prints a plan and parses it back to an equal one (its grammar is in
// docs/plan_format.md), MSCCL XML, and step diagrams for people.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan/check.h"
#include "collectives/plan/plan.h"

namespace lockstep::plan {

// "recv_reduce output[1] <- 3 + input[1] after 0.4"
std::string to_text(const Step& step);
// The whole plan. Its algorithm's name must be one word (empty is printed as "-").
std::string to_text(const Plan& plan);

// [rank][lane][step]: line number of the step in the text, from 1 on.
using StepLines = std::vector<std::vector<std::vector<int>>>;

// Parses a plan, right or wrong: check() judges what it does. Throws a usage Error that names `source`, line and
// column, the text found and the text allowed. Fills `lines`, if given.
Plan parse_plan(std::string_view text, std::string_view source = "plan", StepLines* lines = nullptr);

// Draws a plan's steps: one row per rank, one column per round. Columns are the rounds of cost.h. A cell shows what the
// rank sends in that round: "2>1" chunk 2 to rank 1, which stores it; "2+>1" chunk 2 to rank 1, which adds it; "0-3>1"
// chunks 0 to 3; "1.0>2", if nothing is reduced, chunk 0 of rank 1's input. `contents` is check()'s result.
std::string draw(const Plan& plan, const Contents& contents);

// Plans as MSCCL XML, the format that msccl-tools writes and the MSCCL runtime reads. What maps to what, and what is
// refused: docs/plan_format.md, "MSCCL XML".

// Parses an algorithm. Throws a usage Error of one line that names `source`, the line, what is there and what is
// allowed: if the text is no XML, expresses something that a Plan cannot, or its thread blocks race or wait forever.
// check() judges the rest of the plan. Fills `lines`, if given.
Plan parse_msccl(std::string_view text, std::string_view source = "plan", StepLines* lines = nullptr);

// The plan, which must have passed the checker, with the protocol Simple, for all sizes. Throws a usage Error if MSCCL
// has no such collective.
std::string to_msccl(const Plan& plan);

// Parses a plan in either form: one that begins with '<' is MSCCL XML, any other is in our own form.
Plan parse_any_plan(std::string_view text, std::string_view source = "plan", StepLines* lines = nullptr);

}  // namespace lockstep::plan
