// Bytes that a step's tasks send. docs/metrics.md has the definitions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// Bytes that each rank of a group sends in a collective of `payload` bytes (Task::amount) by a bandwidth-optimal
// algorithm such as a ring: all-reduce 2 S (n-1)/n, shift S, all others S (n-1)/n.
double wire_bytes(Comm comm, std::int64_t payload, std::int64_t ranks);

// The share of wire_bytes() that leaves a rank's node (or switch), which contains `together` of the group's `ranks`
// members: the mean over ranks, by an algorithm that lets as few bytes as possible out. Data that members of a node
// have in common leaves it once; in an all-to-all they have none in common.
double beyond_bytes(Comm comm, std::int64_t payload, std::int64_t ranks, std::int64_t together);

struct SentBytes {
  double messages = 0;                                // messages between stages
  std::array<double, kNumGroupKinds> of_groups = {};  // collectives, by GroupKind
  double of(GroupKind kind) const { return of_groups[static_cast<std::size_t>(kind)]; }
};
// Sent bytes of each rank. Groups count with their true number of members (Group::members).
std::vector<SentBytes> count_sent(const Step& step);

}  // namespace lockstep::schedules
