// How much memory a rank needs, by what for. Weights, gradients and optimizer states as Rajbhandari et al. 2019
// (arXiv:1910.02054), activations as Korthikanti et al. 2022 (arXiv:2205.05198), counted from the same list of
// operations that the recipes are priced from (simulator/model/layer_ops.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/schedule.h"
#include "simulator/layout/layout.h"
#include "simulator/model/model.h"

namespace lockstep::simulator {

struct MemoryBytes {
  double weights = 0;  // 16-bit, as the kernels take them
  double gradients = 0;
  double optimizer = 0;    // 32-bit master copy and two moments
  double activations = 0;  // kept from forward to backward, of all microbatches under way
  double buffers = 0;      // logits, recomputation's layer, gathered weights, messages on their way
  double total() const { return weights + gradients + optimizer + activations + buffers; }
};

// What a stage keeps of one microbatch until its backward, and until its input gradient what more.
double activation_bytes(const Model& model, const Layout& layout, const StageSlice& slice);

// Of pipeline rank `rank`. `stages`: its stages within their pipes; `live`: for each, how many microbatches are under
// way at once (at the worst moment of the rank).
struct LiveStage {
  StageSlice slice;
  double microbatches = 0;
};
MemoryBytes memory_of_rank(const Model& model, const Layout& layout, std::span<const LiveStage> stages);

// Of all pipeline ranks of a schedule (schedules::make_schedule(layout.schedule, shape_of(layout))).
std::vector<MemoryBytes> memory_of(const Model& model, const Layout& layout, const schedules::Schedule& schedule);
// The rank that needs most.
std::size_t worst_of(std::span<const MemoryBytes> ranks);

}  // namespace lockstep::simulator
