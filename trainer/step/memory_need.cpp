#include "trainer/step/memory_need.h"

#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/size.h"
#include "workload/groups.h"
#include "workload/memory.h"
#include "workload/step_memory.h"

namespace lockstep::trainer {
namespace {

using parallel::MemoryKind;

std::int64_t& of(parallel::BytesByKind& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

void add(parallel::BytesByKind& to, const parallel::BytesByKind& more) {
  for (std::size_t k = 0; k < to.size(); ++k) to[k] += more[k];
}

}  // namespace

double kept_share_for_w(const workload::Model& model, const workload::Layout& layout) {
  const workload::StageActivations layer = activations_of(model, layout, {.layers = 1});
  return layer.later / layer.kept;
}

workload::HeldBytes memory_need(const TrainStep& made, const workload::Model& model, const workload::Layout& layout,
                                std::int32_t rank) {
  return workload::held_in_step(model, layout, made.stages, made.step, rank);
}

parallel::BytesByKind most_needed(const TrainStep& made, const workload::Model& model, const workload::Layout& layout) {
  parallel::BytesByKind most = {};
  for (std::int32_t rank = 0; rank < layout.ranks(); ++rank) {
    const parallel::BytesByKind need = memory_need(made, model, layout, rank).at_peak();
    if (parallel::total_of(need) > parallel::total_of(most)) most = need;
  }
  return most;
}

namespace {

// Throws if these ranks need more than is available at `place`: "this host", "cuda:0".
void check_ranks(const TrainStep& made, const workload::Model& model, const workload::Layout& layout,
                 std::span<const std::int32_t> ranks, std::int64_t available_bytes, const std::string& place) {
  parallel::BytesByKind all = {};
  for (const std::int32_t rank : ranks) add(all, memory_need(made, model, layout, rank).at_peak());
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
