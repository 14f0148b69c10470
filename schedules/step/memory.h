// The bytes that a step holds in each rank's memory over time, beyond those that are always there (its share of
// weights, gradients and optimizer states). docs/metrics.md pins the definitions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::schedules {

// Bytes of the activations of one microbatch, or one slice, in a stage, or in a part of it, on one rank. What is
// evicted lies on the rank that holds it from the start of HOLD to the end of YIELD.
struct ActivationBytes {
  std::int64_t until_input_gradient = 0;   // from the forward to the end of B or I
  std::int64_t until_weight_gradient = 0;  // from the forward to the end of B or W, beside the above
};

enum class Held : std::uint8_t {
  activations,         // that the input's gradient frees
  weight_activations,  // that the weight's gradient frees
  parameters,          // gathered units, from the start of UNSHARD to RESHARD or the end
  gradients,           // of a microbatch, from the kernel that completes them to the end of their reduction
  messages,            // from the start of a receive to the end of what waits for it
};
inline constexpr std::size_t kNumHeld = 5;
std::string_view name_of(Held kind);

struct MemoryPoint {
  std::int64_t time_ps = 0;
  std::int64_t bytes = 0;  // from then on
};
using MemoryCurve = std::vector<MemoryPoint>;          // by time, each time once
using RankMemory = std::array<MemoryCurve, kNumHeld>;  // by kind; empty: nothing of it
// [rank]. `activations`: of each stage, or of each slice of each stage (work_index()), its parts; one: of the whole
// stage, whatever parts its tasks have. What one task frees and another takes at the same time is not counted twice.
std::vector<RankMemory> memory_over_time(const Step& step, const StepTimeline& timeline,
                                         std::span<const std::vector<ActivationBytes>> activations);

struct MemoryPeak {
  std::int64_t time_ps = 0;
  std::int64_t bytes = 0;                            // of all kinds, at the worst time
  std::array<std::int64_t, kNumHeld> of_kinds = {};  // then
  std::array<std::int64_t, kNumHeld> most_of = {};   // of each kind, at its own worst time
};
MemoryPeak peak_of(const RankMemory& memory);

}  // namespace lockstep::schedules
