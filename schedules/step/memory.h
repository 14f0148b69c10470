// Bytes that a step holds in each rank's memory over time, beyond the rank's constant share of weights, gradients and
// optimizer states. docs/metrics.md has the definitions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// Bytes of activations of one microbatch (or slice) in a stage (or a part of it) on one rank. Evicted activations count
// on the holding rank from the start of HOLD to the end of YIELD.
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
