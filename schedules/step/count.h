// Sums over a step's tasks. docs/metrics.md pins the definitions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// Bytes that each rank of a group sends in a collective of `payload` bytes (Task::amount), by an algorithm that sends
// as few as possible, such as a ring: all-reduce 2 S (n-1)/n, a shift S, the others S (n-1)/n.
double wire_bytes(Comm comm, std::int64_t payload, std::int64_t ranks);

// Of these, what a rank sends out of its switch (a node, for example), which joins `together` of the group's `ranks`
// members: the mean of all, by an algorithm that lets as few bytes as possible out. What members of a switch have alike
// leaves it once, but an all-to-all has nothing alike.
double beyond_bytes(Comm comm, std::int64_t payload, std::int64_t ranks, std::int64_t together);

struct SentBytes {
  double messages = 0;                                // between stages
  std::array<double, kNumGroupKinds> of_groups = {};  // in collectives
  double of(GroupKind kind) const { return of_groups[static_cast<std::size_t>(kind)]; }
};
// For each rank. Groups count with their true number of members (Group::members).
std::vector<SentBytes> count_sent(const Step& step);

}  // namespace lockstep::schedules
