#include "trainer/step/memory_need.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/size.h"
#include "parallel/parameters/zero_bytes.h"
#include "workload/buckets.h"
#include "workload/groups.h"
#include "workload/memory.h"

namespace lockstep::trainer {
namespace {

using parallel::MemoryKind;

std::int64_t& of(parallel::BytesByKind& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

std::int64_t elem_bytes(const workload::Layout& layout) {
  return static_cast<std::int64_t>(core::size_of(layout.compute));
}

// What a layer's backward makes while it runs: gradients as wide as its widest activations.
std::int64_t working_bytes(const workload::Model& model, const workload::Layout& layout) {
  const std::int64_t rows = layout.microbatch_size * model.sequence;
  return elem_bytes(layout) * rows * (2 * model.hidden + model.ffn_hidden / layout.tp);
}

void add(parallel::BytesByKind& to, const parallel::BytesByKind& more) {
  for (std::size_t k = 0; k < to.size(); ++k) to[k] += more[k];
}

// Of one stage: what lies there, and what is gathered or reduced beside it.
parallel::BytesByKind parameter_bytes(const workload::StagePlan& plan, const workload::Layout& layout) {
  std::int64_t elems = 0;
  std::int64_t largest = 0;
  for (const auto& bucket : plan.buckets) {
    std::int64_t of_bucket = 0;
    for (const std::size_t p : bucket) of_bucket += elems_of_share(plan.parameters[p], layout.tp);
    elems += of_bucket;
    largest = std::max(largest, of_bucket);
  }
  const parallel::ZeroCase zero{elems, shards_of(layout), zero_of(layout), layout.compute, layout.gradient};
  parallel::BytesByKind bytes = parallel::zero_bytes(zero);
  add(bytes,
      parallel::zero_transient_bytes(zero, {.bucket_elems = largest, .several_microbatches = layout.microbatches > 1}));
  return bytes;
}

}  // namespace

double kept_share_for_w(const workload::Model& model, const workload::Layout& layout) {
  const workload::StageActivations layer = activations_of(model, layout, {.layers = 1});
  return layer.later / layer.kept;
}

parallel::BytesByKind memory_need(const TrainStep& made, const workload::Model& model, const workload::Layout& layout,
                                  std::int32_t rank) {
  const schedules::Schedule schedule = schedule_of(layout);
  parallel::BytesByKind need = {};
  std::vector<workload::StageActivations> of_stage;
  for (const workload::StagePlan& plan : made.stages) of_stage.push_back(activations_of(model, layout, plan.place));
  for (const std::int32_t s : stages_of(made, layout, rank)) {
    add(need, parameter_bytes(made.stages[static_cast<std::size_t>(s)], layout));
  }
  const double kept = peak_activations(schedule, coordinates_of(layout, rank).pp, of_stage);
  of(need, MemoryKind::activations) +=
      static_cast<std::int64_t>(kept + recomputed_bytes(model, layout)) + working_bytes(model, layout);
  return need;
}

namespace {

// Throws where these ranks need more than is available at this place: "this host", "cuda:0".
void check_ranks(const TrainStep& made, const workload::Model& model, const workload::Layout& layout,
                 std::span<const std::int32_t> ranks, std::int64_t available_bytes, const std::string& place) {
  parallel::BytesByKind all = {};
  for (const std::int32_t rank : ranks) add(all, memory_need(made, model, layout, rank));
  const std::int64_t needed = parallel::total_of(all);
  if (needed <= available_bytes) return;
  const bool activations = of(all, MemoryKind::activations) > needed / 2;
  const std::string wider = replicas_of(layout) > 1 ? "a larger --shard-ranks, " : "";
  throw core::usage_error(
      model.name + " on " + std::to_string(ranks.size()) + " ranks of " + place + " needs about " +
      core::format_size(needed) + " (" + core::format_size(of(all, MemoryKind::activations)) +
      " of it activations), and there are " + core::format_size(available_bytes) + "; what helps: " +
      (activations ? "--recompute full, a smaller --batch with more --microbatches, or a smaller --length"
                   : wider + "--dtype bf16, --zero 3 with more --dp, or a smaller --model"));
}

}  // namespace

void check_memory(const TrainStep& made, const workload::Model& model, const workload::Layout& layout,
                  std::int64_t available_bytes) {
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(layout.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  check_ranks(made, model, layout, ranks, available_bytes, "this host");
}

void check_gpu_memory(const TrainStep& made, const workload::Model& model, const workload::Layout& layout,
                      const std::vector<GpuRoom>& gpus) {
  for (const GpuRoom& gpu : gpus) check_ranks(made, model, layout, gpu.ranks, gpu.free_bytes, gpu.name);
}

}  // namespace lockstep::trainer
