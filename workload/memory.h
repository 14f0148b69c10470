// Predicts a rank's memory by use. Weights, gradients and optimizer states follow Rajbhandari et al. 2019
// (arXiv:1910.02054), activations Korthikanti et al. 2022 (arXiv:2205.05198), counted from the same list of operations
// from which recipes are priced (workload/operations.h).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "schedules/schedule.h"
#include "schedules/step/step.h"
#include "workload/buckets.h"
#include "workload/context_layer.h"
#include "workload/layout.h"
#include "workload/memory_kinds.h"
#include "workload/model.h"
#include "workload/operations.h"

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
  // For forms that keep no scores in memory.
  explicit ContextMemory(const ContextLayer& layer);

  // Phases of split_heads, exchange_context, core, merge_context and projection; the projection's forward frees tensors
  // that need not be kept, and its gradients begin the backward.
  const std::vector<ContextPhase>& phases(PieceName piece) const;

 private:
  std::map<std::uint32_t, std::vector<ContextPhase>> phases_;  // by what_of()
};

// Most bytes that attention on these ranks holds in its backward, in addition to queries, keys, values, outputs and
// their sums of its own tokens. For colossal: an upper bound.
std::int64_t context_moving_bytes(const Model& model, const Layout& layout);

// Tensors that each piece of a recipe reads and makes, for GPT-2's and Llama's architecture as this library's layers
// run it (trainer/model): a table from which the lifetime of a tensor follows. It lives from the piece that makes it to
// the last one that touches it, whatever order the schedule has.
//
//   forward     x -> n1 -> qkv -> (o, lse) -> sum1 -> (h, n2) -> (pre, act) -> x of the next part
//   backward    d of the next part -> d_pre -> dh -> d_o -> d_qkv -> d

enum class TensorName : std::uint8_t {
  x,       // the input of a part, with the part's number; the stage's output has the number after the last part
  d,       // its gradient
  x_part,  // with Layout::partition_activations, of a group's input
  norm1,
  n1,
  n1_all,
  qkv,
  o,
  lse,
  context,  // tensors of context-parallel ranks: numbered by their list (workload/memory.h)
  term1,    // summed over sequence-parallel ranks: all rows
  sum1,
  h,
  norm2,
  n2,
  n2_all,
  pre,
  act,
  term2,
  d_all,
  d_act,  // if the activation is a kernel of its own
  d_pre,
  d_term2,
  dh,
  dh_all,
  d_o,
  d_qkv,
  d_term1,
  held1,  // gradients of norms that wait for a separate W
  held2,
  codes,  // codes of a product's factors in 8-bit floats, with their scales
  tokens,
  targets,
  logits,
  stats,
  all_stats,
  losses,
  // ---- of a mixture of experts: rows are copies of tokens
  router_logits,
  choices,
  gates,
  counts,
  slots,
  copies,
  all_counts,
  sent,
  here,
  out,
  back,
  d_back,
  d_gates,
  d_out,
  d_here,
  d_sent,
  d_router_logits,
  d_router,  // gradient through the router, before it is added
  // The shared experts' tensors.
  shared_pre,
  shared_act,
  shared,
  d_shared_act,
  d_shared_pre,
  d_shared,
};

struct TensorKey {
  std::int32_t stage = 0;
  std::int32_t microbatch = 0;
  std::int32_t part = 0;
  TensorName name = {};
  std::int32_t number = 0;  // index among those with this name
  friend auto operator<=>(const TensorKey&, const TensorKey&) = default;
};

struct Touch {
  TensorKey key = {};
  bool makes = false;  // it is made here
  MemoryKind kind = {};
  std::int64_t bytes = 0;
};

// Bytes of a tensor that is made or read, and their kind.
Touch touch_of(const Model& model, const Layout& layout, const TensorKey& key, bool makes);

// A piece consists of phases: gradients that it adds to and tensors that it makes exist from the beginning of a phase;
// tensors that are not touched again are freed at its end.
struct Phase {
  std::vector<std::size_t> gradients = {};  // indices of the stage's parameters
  std::vector<Touch> touches = {};
  bool commits = false;  // the part's gradients of the microbatch are complete at its end
};
// The phases of a kernel of a part, or of a collective inside a layer. `context`: the rank's, if there are
// context-parallel ranks, otherwise nullptr.
std::vector<Phase> phases_of(const Model& model, const Layout& layout, const StageSlice& place,
                             const ContextMemory* context, const schedules::Task& piece);

// Predicts the memory that a rank of the trainer holds in a training step, at its peak and by kind: exactly the bytes
// that it counts (parallel::Memory::held_by_tasks), from only the Step's list of tasks and the lifetimes of tensors.
// Tasks that overlap with others in other threads count at their position in the list.

// Numbers of the optimizer in device memory: kernels::AdamW's schedule for each update of a step, the factor of
// gradients, their norm.
constexpr std::int64_t step_numbers(std::int64_t updates) {
  return 3 * updates + 2;
}

// `plans`: of each stage (plans_of). `step`: of all ranks (unfolded). Without the state of compressed all-reduces.
HeldBytes held_in_step(const Model& model, const Layout& layout, const std::vector<StagePlan>& plans,
                       const schedules::Step& step, std::int32_t rank);
// Bytes that each task of a rank copies to or from the device (OFFLOAD and LOAD of activations; otherwise 0), from the
// same arguments.
std::vector<std::int64_t> copied_bytes(const Model& model, const Layout& layout, const std::vector<StagePlan>& plans,
                                       const schedules::Step& step, std::int32_t rank);

}  // namespace lockstep::workload
