#include "workload/memory.h"

#include <algorithm>

#include "schedules/catalogue.h"
#include "workload/context_memory.h"
#include "workload/groups.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::workload {
namespace {

using schedules::Action;
using schedules::Op;

double weight_bytes(const Layout& layout) {
  return static_cast<double>(core::size_of(layout.compute));
}
double gradient_bytes(const Layout& layout) {
  return static_cast<double>(core::size_of(layout.gradient));
}
// Two moments, and a master copy of weights that are narrower than f32.
double optimizer_bytes(const Layout& layout) {
  return layout.compute == core::DType::f32 ? 8 : 12;
}

// The part of a list of operations that is kept under the layout's recomputation.
double kept_of(const std::vector<Operation>& ops, const Layout& layout) {
  double bytes = 0;
  for (const Operation& op : ops) {
    if (op.core && layout.recompute == Recompute::selective) continue;
    bytes += op.kept_bytes;
  }
  return bytes;
}

double later_of(const std::vector<Operation>& ops) {
  double bytes = 0;
  for (const Operation& op : ops) bytes += op.later_bytes;
  return bytes;
}

// With full recomputation the first layer of each group keeps its input.
double kept_of_layers(const std::vector<Operation>& ops, const Model& model, const Layout& layout,
                      std::int64_t layers) {
  if (layout.recompute != Recompute::full) return static_cast<double>(layers) * kept_of(ops, layout);
  const std::int64_t inputs = (layers + layout.recompute_every - 1) / layout.recompute_every;
  return static_cast<double>(inputs) * kept_input_bytes(model, layout);
}

void add(ElemCount& to, const ElemCount& more) {
  to.whole += more.whole;
  to.shard += more.shard;
  to.largest_part = std::max(to.largest_part, more.largest_part);
}

// Gathered weights of the unit at work and the next; a bucket being filled and one being reduced where gradients are
// sharded; a message coming and one leaving, each way, where there is a pipeline; what context ranks have on the way.
double buffer_bytes(const Model& model, const Layout& layout, const ElemCount& held, double recomputed) {
  double bytes = recomputed;
  if (layout.zero == 3) bytes += weight_bytes(layout) * std::min(held.whole, 2 * held.largest_part);
  if (layout.zero >= 2) {
    const double gradients = gradient_bytes(layout) * held.whole;
    const double bucket = layout.bucket_cap_bytes > 0 ? static_cast<double>(layout.bucket_cap_bytes) : gradients;
    bytes += std::min(gradients, 2 * bucket);
  }
  if (layout.pp > 1) bytes += 4 * input_bytes(model, layout);
  if (layout.cp > 1) bytes += static_cast<double>(context_moving_bytes(model, layout));
  return bytes;
}

}  // namespace

MemoryBytes states_of(const Layout& layout, double whole, double shard, std::int32_t versions) {
  MemoryBytes bytes;
  bytes.weights = weight_bytes(layout) * (layout.zero == 3 ? shard : whole) * versions;
  bytes.gradients = gradient_bytes(layout) * (layout.zero >= 2 ? shard : whole);
  if (layout.offload.optimizer == Offload::none)
    bytes.optimizer = optimizer_bytes(layout) * (layout.zero >= 1 ? shard : whole);
  return bytes;
}

double recomputed_bytes(const Model& model, const Layout& layout) {
  const std::vector<Operation> ops = layer_operations(model, layout);
  double core = 0;
  for (const Operation& op : ops) core += op.core ? op.kept_bytes : 0;
  switch (layout.recompute) {
    case Recompute::none:
      return 0;
    case Recompute::selective:
      return core;
    case Recompute::full:
      return layout.recompute_every * kept_bytes(ops);
  }
  return 0;
}

StageActivations activations_of(const Model& model, const Layout& layout, const StageSlice& slice) {
  const std::vector<Operation> layer = layer_operations(model, layout);
  StageActivations found;
  found.kept = kept_of_layers(layer, model, layout, slice.layers);
  found.later = static_cast<double>(slice.layers) * later_of(layer);
  if (slice.embedding) found.kept += kept_bytes(embedding_operations(model, layout));
  if (slice.head) {
    const std::vector<Operation> head = head_operations(model, layout);
    found.kept += kept_bytes(head);
    found.later += later_of(head);
  }
  return found;
}

double peak_activations(const schedules::Schedule& schedule, std::int32_t rank,
                        std::span<const StageActivations> of_stage) {
  double now = 0;
  double peak = 0;
  for (const Action& action : schedule.of_rank[static_cast<std::size_t>(rank)]) {
    const StageActivations& stage = of_stage[static_cast<std::size_t>(action.stage)];
    if (action.op == Op::forward) now += stage.kept;
    if (action.op == Op::backward) now -= stage.kept;
    if (action.op == Op::input_gradient) now += stage.later - stage.kept;
    if (action.op == Op::weight_gradient) now -= stage.later;
    peak = std::max(peak, now);
  }
  return peak;
}

namespace {

MemoryBytes memory_of(const Model& model, const Layout& layout, const ElemCount& held, double activation_bytes,
                      double recomputed, std::int32_t versions) {
  MemoryBytes bytes = states_of(layout, held.whole, held.shard, versions);
  bytes.activations = activation_bytes;
  bytes.buffers = buffer_bytes(model, layout, held, recomputed);
  return bytes;
}

// The bytes of stages that are alike, worked out once.
struct OfStage {
  StageSlice slice;
  StageActivations activations;
  ElemCount elems;
};

}  // namespace

MemoryBytes memory_of_rank(const Model& model, const Layout& layout, std::span<const StageSlice> stages,
                           double activation_bytes, std::int32_t versions) {
  ElemCount held;
  for (const StageSlice& slice : stages) add(held, count_elems(model, layout, slice));
  return memory_of(model, layout, held, activation_bytes, recomputed_bytes(model, layout), versions);
}

std::vector<MemoryBytes> memory_of(const Model& model, const Layout& layout, const schedules::Schedule& schedule) {
  const schedules::CatalogueEntry& entry = schedules::entry_named(layout.schedule);
  std::vector<OfStage> known;
  std::vector<StageActivations> of_stage;
  std::vector<ElemCount> of_rank(schedule.of_rank.size());
  for (std::int32_t stage = 0; stage < schedule.num_stages(); ++stage) {
    const StageSlice slice = slice_of(model, layout, schedule.stages_a_pipe, stage % schedule.stages_a_pipe);
    auto same = std::find_if(known.begin(), known.end(), [&](const OfStage& one) { return one.slice.like(slice); });
    if (same == known.end()) {
      known.push_back({slice, activations_of(model, layout, slice), count_elems(model, layout, slice)});
      same = known.end() - 1;
    }
    of_stage.push_back(same->activations);
    add(of_rank[static_cast<std::size_t>(schedule.rank_of_stage[static_cast<std::size_t>(stage)])], same->elems);
  }
  const double recomputed = recomputed_bytes(model, layout);
  std::vector<MemoryBytes> found;
  for (std::int32_t rank = 0; rank < schedule.num_ranks(); ++rank) {
    found.push_back(memory_of(model, layout, of_rank[static_cast<std::size_t>(rank)],
                              peak_activations(schedule, rank, of_stage), recomputed,
                              schedules::weight_versions(entry, shape_of(layout), rank)));
  }
  return found;
}

std::size_t worst_of(std::span<const MemoryBytes> ranks) {
  std::size_t worst = 0;
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    if (ranks[i].total() > ranks[worst].total()) worst = i;
  }
  return worst;
}

}  // namespace lockstep::workload
