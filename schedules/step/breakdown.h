// Where a step's time and bytes go: what its ranks send, what keeps them busy, and what their memory holds.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
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
  std::int64_t filler_ps = 0;  // work for the bubbles (FillerItem, schedules/passes/passes.h)
  // Exposed communication per lane: the compute lane is idle while bytes that it waits for move in this lane. Messages
  // between stages count under `receive` where they are waited for, and under `send` where a rank waits for its own
  // message to leave.
  std::array<std::int64_t, kNumLanes> exposed_ps = {};
  std::array<std::int64_t, kNumComms> exposed_of_ps = {};  // collectives among these, by kind (Comm)
  // The compute lane is idle and nothing that it waits for moves: other ranks are not that far. Includes the time
  // before a rank's start and after its end. One rank alone has none.
  std::int64_t bubble_ps = 0;
  std::int64_t between_ps = 0;  // one rank's time between its kernels, in which it waits for nobody

  std::int64_t compute_ps() const { return forward_ps + backward_ps + recompute_ps + optimizer_ps + filler_ps; }
  std::int64_t all_exposed_ps() const;
  std::int64_t exposed_reductions_ps() const;  // gradients, among shards and over their replicas
};

// [lane]: true if the lane's tasks block the compute lane even without a dependency, as one thread runs both. Bytes
// that move there while the compute lane is idle also count as exposed.
using BlockingLanes = std::array<bool, kNumLanes>;

std::vector<Breakdown> breakdown_of(const Step& step, const StepTimeline& timeline, const BlockingLanes& blocking = {});

// Bytes that a step holds in each rank's memory over time, beyond the rank's constant share of weights, gradients and
// optimizer states. docs/metrics.md has the definitions.

// Bytes of activations of one microbatch (or slice) in a stage (or part of a stage) on one rank. Evicted activations
// count on the holding rank from the start of HOLD to the end of YIELD.
struct ActivationBytes {
  std::int64_t until_input_gradient = 0;   // from the forward to the end of B or I
  std::int64_t until_weight_gradient = 0;  // from the forward to the end of B or W, in addition to the above
};

enum class Held : std::uint8_t {
  activations,         // freed by the input gradient
  weight_activations,  // freed by the weight gradient
  parameters,          // gathered units, from the start of UNSHARD to RESHARD or the end
  gradients,           // a microbatch's, from the kernel that completes them to the end of their reduction
  messages,            // from the start of a receive to the end of the task that waits for it
};
inline constexpr std::size_t kNumHeld = 5;
std::string_view name_of(Held kind);

struct MemoryPoint {
  std::int64_t time_ps = 0;
  std::int64_t bytes = 0;  // from that time on
};
using MemoryCurve = std::vector<MemoryPoint>;          // ascending, distinct times
using RankMemory = std::array<MemoryCurve, kNumHeld>;  // by kind; empty: never any bytes of that kind
// [rank]. `activations`: per stage, or per slice of each stage (work_index()), the bytes of each part; a single entry
// is for the whole stage, whatever parts its tasks have. Bytes that one task frees and another takes at the same time
// are not counted twice.
std::vector<RankMemory> memory_over_time(const Step& step, const StepTimeline& timeline,
                                         std::span<const std::vector<ActivationBytes>> activations);

struct MemoryPeak {
  std::int64_t time_ps = 0;
  std::int64_t bytes = 0;                            // all kinds together, at the peak
  std::array<std::int64_t, kNumHeld> of_kinds = {};  // each kind, at that time
  std::array<std::int64_t, kNumHeld> most_of = {};   // each kind, at its own peak
};
MemoryPeak peak_of(const RankMemory& memory);

}  // namespace lockstep::schedules
