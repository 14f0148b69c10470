// Predicts a rank's memory by use. Weights, gradients and optimizer states follow Rajbhandari et al. 2019
// (arXiv:1910.02054), activations Korthikanti et al. 2022 (arXiv:2205.05198), counted from the same list of operations
// from which recipes are priced (workload/operations.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "schedules/schedule.h"
#include "schedules/step/step.h"
#include "workload/context_layer.h"
#include "workload/layout.h"
#include "workload/memory_kinds.h"
#include "workload/model.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::workload {

struct MemoryBytes {
  double weights = 0;  // in the compute dtype, as kernels read them
  double gradients = 0;
  double optimizer = 0;    // states in f32 (kernels/optimizer/rules.h), and a master copy of 16-bit weights
  double activations = 0;  // kept from forward to backward, of all microbatches in flight
  double buffers = 0;      // a recomputed layer, gathered weights, buckets, messages in flight
  double total() const { return weights + gradients + optimizer + activations + buffers; }
};

// Weights, gradients and optimizer states of a rank that works with `whole` elements and owns `shard` elements under
// ZeRO (arXiv:1910.02054, section 5; table 1 has whole / N for shard), without those that a layout offloads.
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
// The same for each of the stage's parts. With full recomputation the first layer of a group keeps the group's input.
std::vector<StageActivations> part_activations_of(const Model& model, const Layout& layout, const StageSlice& slice);

// The most bytes in a rank's memory at once while it goes through its list, including those that it holds for another
// rank. `of_stage`: one for each stage, or for each slice of each stage (schedules::work_index()). Offloaded
// activations are assumed to stay; memory_of() accounts for their copies.
double peak_activations(const schedules::Schedule& schedule, std::int32_t rank,
                        std::span<const StageActivations> of_stage);

// Memory of all pipeline ranks of a schedule: make_schedule(layout.schedule, shape_of(layout)).
std::vector<MemoryBytes> memory_of(const Model& model, const Layout& layout, const schedules::Schedule& schedule);
// Index of the rank that needs most.
std::size_t worst_of(std::span<const MemoryBytes> ranks);

// Tensors that each piece of attention on context-parallel ranks makes and reads (parallel/context), from its list
// (context_list.h). A tensor lives from the phase that makes it to the last one that uses it.

struct ContextTouch {
  std::int32_t tensor = 0;  // unique within a layer and microbatch
  bool makes = false;
  std::int64_t bytes = 0;
};
using ContextPhase = std::vector<ContextTouch>;

class ContextMemory {
 public:
  explicit ContextMemory(const ContextLayer& layer);

  // Phases of split_heads, exchange_context, core (or scores and values), merge_context and projection; the
  // projection's forward frees tensors that need not be kept, and its gradients begin the backward.
  const std::vector<ContextPhase>& phases(PieceName piece) const;

 private:
  std::map<std::uint32_t, std::vector<ContextPhase>> phases_;  // by what_of()
};

// Most bytes that attention on these ranks holds in its backward, in addition to queries, keys, values, outputs and
// their sums of its own tokens. For colossal: an upper bound.
std::int64_t context_moving_bytes(const Model& model, const Layout& layout);

// Predicts the memory that a rank of the trainer holds in a training step, at its peak and by kind: exactly the bytes
// that it counts (parallel::Memory::held_by_tasks), from only the Step's list of tasks and the lifetimes of tensors.
// Tasks that overlap with others in other threads count at their position in the list.

// Numbers of the optimizer in device memory: kernels::optimizer_schedule() for each update of a step, the factor of
// gradients, their norm.
constexpr std::int64_t step_numbers(std::int64_t updates) {
  return 3 * updates + 2;
}

// `plans`: of each stage (plans_of). `step`: of all ranks (unfolded). Without the state of compressed all-reduces.
HeldBytes held_in_step(const Model& model, const Layout& layout, const std::vector<StagePlan>& plans,
                       const schedules::Step& step, std::int32_t rank);
// Bytes that each task of a rank moves to or from the device (OFFLOAD and LOAD of activations, EVICT and FETCH, HOLD
// and YIELD; otherwise 0), from the same arguments.
std::vector<std::int64_t> copied_bytes(const Model& model, const Layout& layout, const std::vector<StagePlan>& plans,
                                       const schedules::Step& step, std::int32_t rank);

// Slots for what OFFLOADs move and what HOLDs receive, in a buffer of the host or of this rank, in the order of tasks.
// A slot is free again once a LOAD or YIELD has moved its contents back, so the buffer has the size of the most bytes
// that are in it at once.
struct CopySlots {
  std::vector<CopySlot> of_task;  // empty for other tasks
  std::int64_t room_bytes = 0;
};
// `bytes` of each task (copied_bytes).
CopySlots slots_of_copies(const schedules::RankStep& rank, const std::vector<std::int64_t>& bytes);

}  // namespace lockstep::workload
