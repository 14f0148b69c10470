// Whether a schedule is a training step: every microbatch goes once through each stage of one pipe, forward and
// backward, each action after what it needs; and if its lists have messages, each that is needed is sent once, after it
// is made, and received once, before it is used. On a stage the slices of a microbatch go forward from the first to the
// last and backward from the last to the first. What is evicted is fetched before its backward. Times and channels do
// not matter here; transport_check.h asks about channels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/schedule.h"

namespace lockstep::schedules {

struct Problem {
  std::int32_t rank = 0;
  std::size_t index = 0;  // in the rank's list; its length if something is missing there
  std::string what;
};

// In the order of ranks and lists; empty: it is right.
std::vector<Problem> check(const Schedule& schedule);

// The lists of all ranks around a place, which is in brackets: what stands at the same index, not at the same time.
std::string grid_around(const Schedule& schedule, const Problem& problem);

// Throws core::Error(usage) with the first problem and the grid around it, if there is one.
void check_or_throw(const Schedule& schedule);

}  // namespace lockstep::schedules
