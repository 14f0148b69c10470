// Where a step's time and bytes go.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// Bytes that a step's tasks send. docs/metrics.md has the definitions.

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

// Converts timelines of steps that ran to the simulator's convention: communication lasts only while its bytes move.

// A rank that runs a step records when it entered and left a collective; until the last member entered, it waited for
// that member, not for bytes. So a collective begins with its last member, and a receive not before its send.
StepTimeline when_bytes_move(const Step& step, StepTimeline timeline);

// Breakdown of each rank's time in a step that ran: compute, exposed communication, and bubbles.

// Parts that sum to the makespan, for each rank.
struct Breakdown {
  std::int64_t forward_ps = 0;
  std::int64_t backward_ps = 0;  // B, I and W
  std::int64_t recompute_ps = 0;
  std::int64_t optimizer_ps = 0;
  std::int64_t filler_ps = 0;  // work for the bubbles (schedules/passes/fill_bubbles.h)
  // Exposed communication per lane: the compute lane is idle while bytes that it waits for move in this lane. Messages
  // between stages count under `receive` where they are waited for, and under `send` where a rank waits for its own
  // message to leave.
  std::array<std::int64_t, kNumLanes> exposed_ps = {};
  // The compute lane is idle and nothing that it waits for moves: other ranks are not that far. Includes the time
  // before a rank's start and after its end.
  std::int64_t bubble_ps = 0;

  std::int64_t compute_ps() const { return forward_ps + backward_ps + recompute_ps + optimizer_ps + filler_ps; }
  std::int64_t all_exposed_ps() const;
  std::int64_t exposed_reductions_ps() const;  // gradients, among shards and over their replicas
};

// [lane]: true if the lane's tasks block the compute lane even without a dependency, as one thread runs both. Bytes
// that move there while the compute lane is idle also count as exposed.
using BlockingLanes = std::array<bool, kNumLanes>;

std::vector<Breakdown> breakdown_of(const Step& step, const StepTimeline& timeline, const BlockingLanes& blocking = {});

}  // namespace lockstep::schedules
