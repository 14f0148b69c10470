#include "workload/memory.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "schedules/generators/catalogue.h"
#include "schedules/passes/passes.h"
#include "schedules/play.h"
#include "schedules/step/step.h"
#include "workload/build_step.h"
#include "workload/layout.h"
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
double optimizer_bytes(const Layout& layout) {
  return static_cast<double>(optimizer_elem_bytes(layout.optimizer, layout.compute));
}

// The bytes of a list of operations that are kept under the layout's recomputation.
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
double kept_of_layer(const std::vector<Operation>& ops, const Model& model, const Layout& layout, std::int64_t layer) {
  if (layout.recompute != Recompute::full) return kept_of(ops, layout);
  return layer % layout.recompute_every == 0 ? kept_input_bytes(model, layout) : 0;
}

void add(ElemCount& to, const ElemCount& more) {
  to.whole += more.whole;
  to.shard += more.shard;
  to.secondary += more.secondary;
  to.largest_part = std::max(to.largest_part, more.largest_part);
}

// Gathered weights of the current unit and the next; one bucket being filled and one being reduced if gradients are
// sharded; one message received and one sent in each direction if there is a pipeline; data in flight between
// context-parallel ranks.
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

MemoryBytes states_in(const Layout& layout, Offload place, double whole, double shard, std::int32_t versions) {
  MemoryBytes bytes;
  if (layout.offload.parameters == place) {
    bytes.weights = weight_bytes(layout) * (layout.zero == 3 ? shard : whole) * versions;
  }
  if (layout.offload.gradients == place) {
    bytes.gradients = gradient_bytes(layout) * (layout.zero >= 2 ? shard : whole);
  }
  // Without accumulation a bucket's gradients are freed by its update: one is being computed and one reduced.
  // Sequence-parallel ranks sum norms' gradients, which every bucket has, at the end.
  const bool sums_at_end = layout.tp > 1 && layout.shares_rows();
  const bool goes = layout.update == Update::per_bucket && layout.microbatches == 1 && !sums_at_end;
  if (goes && layout.bucket_cap_bytes > 0) {
    bytes.gradients = std::min(bytes.gradients, 2 * static_cast<double>(layout.bucket_cap_bytes));
  }
  if (layout.offload.optimizer == place) {
    bytes.optimizer = optimizer_bytes(layout) * (layout.zero >= 1 ? shard : whole);
  }
  return bytes;
}

MemoryBytes states_of(const Layout& layout, double whole, double shard, std::int32_t versions) {
  return states_in(layout, Offload::none, whole, shard, versions);
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
  StageActivations found;
  for (const StageActivations& part : part_activations_of(model, layout, slice)) {
    found.kept += part.kept;
    found.later += part.later;
  }
  return found;
}

std::vector<StageActivations> part_activations_of(const Model& whole, const Layout& layout, const StageSlice& slice) {
  const Model model = of_tokens(whole, slice);
  std::vector<StageActivations> parts;
  if (slice.embedding) parts.push_back({.kept = kept_bytes(embedding_operations(model, layout))});
  const std::vector<Operation> ops = layer_operations(model, layout, slice.first_token);
  for (std::int64_t layer = 0; layer < slice.layers; ++layer) {
    parts.push_back({kept_of_layer(ops, model, layout, layer), later_of(ops)});
  }
  if (slice.head) {
    const std::vector<Operation> head = head_operations(model, layout);
    parts.push_back({kept_bytes(head), later_of(head)});
  }
  return parts;
}

double peak_activations(const schedules::Schedule& schedule, std::int32_t rank,
                        std::span<const StageActivations> of_stage) {
  double now = 0;
  double peak = 0;
  double leaving = 0;
  for (const Action& action : schedule.of_rank[static_cast<std::size_t>(rank)]) {
    const StageActivations& stage = of_stage[schedules::work_index(action.stage, action.microbatch, schedule.slices())];
    if (action.op == Op::forward || action.op == Op::fetch) now += stage.kept;
    if (action.op == Op::backward) now -= stage.kept;
    if (action.op == Op::input_gradient) now += stage.later - stage.kept;
    if (action.op == Op::weight_gradient) now -= stage.later;
    peak = std::max(peak, now);
    if (is_compute(action.op)) now -= std::exchange(leaving, 0);
    if (action.op == Op::evict) leaving += stage.kept;
  }
  return peak +
         most_evicted(schedule, static_cast<std::size_t>(schedule.num_ranks() - 1 - rank), [&](const Action& action) {
           return of_stage[schedules::work_index(action.stage, action.microbatch, schedule.slices())].kept;
         });
}

namespace {

// The bytes of equal stages, computed once.
struct OfStage {
  StageSlice slice;
  std::vector<StageActivations> parts;
  StageActivations activations;
  ElemCount elems;
};

// Merges the kernels of each part into one piece.
std::vector<schedules::Piece> parts_of(const std::vector<schedules::Piece>& pieces) {
  std::vector<schedules::Piece> parts;
  for (const schedules::Piece& piece : pieces) {
    if (piece.comm != schedules::Comm::none) continue;
    if (parts.empty() || parts.back().op != piece.op || parts.back().part != piece.part) parts.push_back(piece);
  }
  return parts;
}

// A rank's tasks, part by part, with the copies of offloaded tensors.
schedules::Step step_with_copies(const Model& model, const Layout& layout, const schedules::Schedule& schedule,
                                 std::span<const OfStage> stages) {
  std::vector<schedules::StageRecipe> recipes;
  std::vector<std::vector<schedules::CopyCosts>> copies;
  for (const OfStage& stage : stages) {
    const schedules::StageRecipe whole = recipe_of(model, layout, stage.slice);
    recipes.push_back({parts_of(whole.forward), parts_of(whole.backward), parts_of(whole.input_gradient),
                       parts_of(whole.weight_gradient)});
    std::vector<schedules::CopyCosts>& of_stage = copies.emplace_back();
    for (const StageActivations& part : stage.parts) of_stage.push_back({.bytes = std::llround(part.kept)});
  }
  schedules::Step step =
      schedules::lower(schedule, std::vector<schedules::StageCosts>(stages.size()), schedules::Sends::asynchronous);
  schedules::split_stages(step, recipes);
  schedules::offload_activations(step, copies, layout.offload_ahead);
  return step;
}

double peak_with_copies(const schedules::RankStep& rank, std::span<const OfStage> stages) {
  double now = 0;
  double peak = 0;
  for (const schedules::Task& task : rank.tasks) {
    if (task.part < 0) continue;  // messages
    const StageActivations& part =
        stages[static_cast<std::size_t>(task.stage)].parts[static_cast<std::size_t>(task.part)];
    if (task.op == Op::forward || task.op == Op::load) now += part.kept;
    if (task.op == Op::backward || task.op == Op::offload) now -= part.kept;
    if (task.op == Op::input_gradient) now += part.later - part.kept;
    if (task.op == Op::weight_gradient) now -= part.later;
    peak = std::max(peak, now);
  }
  return peak;
}

// If microbatches are sliced: for one microbatch, the gradients of the keys and values of slices whose backward is
// still to come, to which later slices have added; and smaller messages.
double key_gradient_bytes(const Model& model, const Layout& layout, std::int64_t layers) {
  if (layout.slices == 1) return 0;
  const std::vector<std::int64_t> tokens = tokens_of_slices(model, layout);
  const auto earlier = static_cast<double>(layout.microbatch_size * (model.sequence - tokens.back()));
  const auto columns = static_cast<double>(2 * model.kv_heads * model.head_size) / layout.tp;
  return static_cast<double>(layers) * weight_bytes(layout) * earlier * columns;
}

MemoryBytes memory_of(const Model& model, const Layout& layout, const ElemCount& held, double activation_bytes,
                      double recomputed, std::int32_t versions) {
  MemoryBytes bytes = states_of(layout, held.whole, held.shard, versions);
  bytes.weights += weight_bytes(layout) * held.secondary;
  bytes.activations = activation_bytes;
  bytes.buffers = buffer_bytes(model, layout, held, recomputed);
  return bytes;
}

}  // namespace

std::vector<MemoryBytes> memory_of(const Model& model, const Layout& layout, const schedules::Schedule& schedule) {
  const schedules::CatalogueEntry& entry = schedules::entry_named(layout.schedule);
  std::vector<OfStage> known;
  std::vector<OfStage> stages;
  std::vector<StageActivations> of_stage;
  std::vector<ElemCount> of_rank(schedule.of_rank.size());
  std::vector<std::int64_t> layers(of_rank.size());
  for (std::int32_t stage = 0; stage < schedule.num_stages(); ++stage) {
    const auto rank = static_cast<std::size_t>(schedule.rank_of_stage[static_cast<std::size_t>(stage)]);
    for (std::int32_t token_slice = 0; token_slice < schedule.slices(); ++token_slice) {
      const StageSlice slice =
          slice_of(model, layout, schedule.stages_per_pipe, stage % schedule.stages_per_pipe, token_slice);
      auto same =
          std::find_if(known.begin(), known.end(), [&](const OfStage& other) { return other.slice.like(slice); });
      if (same == known.end()) {
        known.push_back({slice, part_activations_of(model, layout, slice), activations_of(model, layout, slice),
                         count_elems(model, layout, slice)});
        same = known.end() - 1;
      }
      of_stage.push_back(same->activations);
      if (token_slice > 0) continue;
      stages.push_back(*same);
      add(of_rank[rank], same->elems);
      layers[rank] += slice.layers;
    }
  }
  const double recomputed = recomputed_bytes(model, layout);
  const bool offloads = layout.offload.activations != Offload::none;
  schedules::Step copied;
  if (offloads) copied = step_with_copies(model, layout, schedule, stages);
  std::vector<MemoryBytes> found;
  for (std::int32_t rank = 0; rank < schedule.num_ranks(); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const double activations =
        offloads ? peak_with_copies(copied.of_rank[r], stages) : peak_activations(schedule, rank, of_stage);
    found.push_back(memory_of(model, layout, of_rank[r], activations, recomputed,
                              schedules::weight_versions(entry, shape_of(layout), rank)));
    found.back().buffers += key_gradient_bytes(model, layout, layers[static_cast<std::size_t>(rank)]);
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
