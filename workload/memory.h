// Predicts a rank's memory by use. Weights, gradients and optimizer states follow Rajbhandari et al. 2019
// (arXiv:1910.02054), activations Korthikanti et al. 2022 (arXiv:2205.05198), counted from the same list of operations
// from which recipes are priced (workload/operations.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/schedule.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::workload {

struct MemoryBytes {
  double weights = 0;  // in the compute dtype, as kernels read them
  double gradients = 0;
  double optimizer = 0;    // two moments in f32, and a master copy of 16-bit weights
  double activations = 0;  // kept from forward to backward, of all microbatches in flight
  double buffers = 0;      // a recomputed layer, gathered weights, buckets, messages in flight
  double total() const { return weights + gradients + optimizer + activations + buffers; }
};

// Weights, gradients and optimizer states of a rank that works with `whole` elements and has `shard` of them under ZeRO
// (arXiv:1910.02054, section 5; table 1 has whole / N for shard), without those that a layout offloads.
MemoryBytes states_of(const Layout& layout, double whole, double shard, std::int32_t versions = 1);
// Those that a layout keeps in a location (none: on the device).
MemoryBytes states_in(const Layout& layout, Offload place, double whole, double shard, std::int32_t versions = 1);

// Bytes that a stage keeps for one microbatch: from its forward to its backward, or to its input gradient; and those
// that a separate weight gradient still needs after that (inputs of products and gradients of their outputs). For a
// slice of tokens, its part.
struct StageActivations {
  double kept = 0;
  double later = 0;
};
// Bytes of one microbatch that are recomputed before its backward.
double recomputed_bytes(const Model& model, const Layout& layout);
StageActivations activations_of(const Model& model, const Layout& layout, const StageSlice& slice);
// The same for each of the stage's parts. With full recomputation the first layer of a group keeps the input of all.
std::vector<StageActivations> part_activations_of(const Model& model, const Layout& layout, const StageSlice& slice);

// The most bytes in a rank's memory at once while it goes through its list, including those that it holds for another
// rank. `of_stage`: one for each stage, or for each slice of each stage (schedules::work_index()). Offloaded
// activations are assumed to stay; memory_of() accounts for their copies.
double peak_activations(const schedules::Schedule& schedule, std::int32_t rank,
                        std::span<const StageActivations> of_stage);

// Memory of a pipeline rank that has these stages, with this peak of activations. `versions`: of the weights
// (schedules::weight_versions).
MemoryBytes memory_of_rank(const Model& model, const Layout& layout, std::span<const StageSlice> stages,
                           double activation_bytes, std::int32_t versions = 1);

// The same for all pipeline ranks of a schedule: make_schedule(layout.schedule, shape_of(layout)).
std::vector<MemoryBytes> memory_of(const Model& model, const Layout& layout, const schedules::Schedule& schedule);
// Index of the rank that needs most.
std::size_t worst_of(std::span<const MemoryBytes> ranks);

}  // namespace lockstep::workload
