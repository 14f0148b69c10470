#include "trainer/step/memory_need.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/size.h"
#include "parallel/parameters/zero_bytes.h"
#include "schedules/count.h"
#include "trainer/step/bucket_plan.h"

namespace lockstep::trainer {
namespace {

using parallel::MemoryKind;

std::int64_t& of(parallel::BytesByKind& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

std::int64_t elem_bytes(const GptShape& shape) {
  return static_cast<std::int64_t>(core::size_of(shape.compute));
}

// Of all rows and words of this rank: the logits, which become their gradient in place.
std::int64_t logit_bytes(const GptShape& shape) {
  const std::int64_t words = (shape.config.vocabulary + shape.tensor.ranks - 1) / shape.tensor.ranks;
  return elem_bytes(shape) * shape.rows() * words;
}

// What a layer's backward makes while it runs: gradients as wide as its widest activations.
std::int64_t working_bytes(const GptShape& shape) {
  return elem_bytes(shape) * shape.rows() * shape.config.hidden * (2 + 4 / shape.tensor.ranks);
}

// The most microbatches that are between a stage's forward and the end of their backward.
std::int64_t most_until_w(const std::vector<schedules::Action>& list, std::int32_t stage) {
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const schedules::Action& action : list) {
    if (action.stage != stage) continue;
    if (action.op == schedules::Op::forward) most = std::max(most, ++now);
    if (action.op == schedules::Op::backward || action.op == schedules::Op::weight_gradient) --now;
  }
  return most;
}

void add(parallel::BytesByKind& to, const parallel::BytesByKind& more) {
  for (std::size_t k = 0; k < to.size(); ++k) to[k] += more[k];
}

// Of one stage: what lies there, and what is gathered or reduced beside it.
parallel::BytesByKind parameter_bytes(const StagePlan& plan, const GptShape& shape, const TrainLayout& layout) {
  std::int64_t elems = 0;
  std::int64_t largest = 0;
  for (const auto& bucket : plan.buckets) {
    std::int64_t of_bucket = 0;
    for (const std::size_t p : bucket) of_bucket += elems_of_share(plan.parameters[p], layout.tp);
    elems += of_bucket;
    largest = std::max(largest, of_bucket);
  }
  const parallel::ZeroCase zero{elems, shards_of(layout), zero_of(layout), shape.compute, layout.gradient};
  parallel::BytesByKind bytes = parallel::zero_bytes(zero);
  add(bytes,
      parallel::zero_transient_bytes(zero, {.bucket_elems = largest, .several_microbatches = layout.microbatches > 1}));
  return bytes;
}

}  // namespace

std::int64_t kept_bytes_a_layer(const GptShape& shape) {
  const std::int64_t all = elem_bytes(shape) * shape.rows() * shape.config.hidden;
  const std::int64_t own = elem_bytes(shape) * shape.own_rows() * shape.config.hidden;
  if (shape.recompute == Recompute::full) return own;
  const std::int64_t lse = 4 * shape.rows() * shape.config.heads / shape.tensor.ranks;
  const std::int64_t kept = 4 * own + 12 * all / shape.tensor.ranks + 16 * shape.own_rows() + lse;
  return shape.recompute == Recompute::selective ? kept - all / shape.tensor.ranks - lse : kept;
}

std::int64_t kept_for_w_bytes_a_layer(const GptShape& shape) {
  const std::int64_t all = elem_bytes(shape) * shape.rows() * shape.config.hidden;
  const std::int64_t own = elem_bytes(shape) * shape.own_rows() * shape.config.hidden;
  // Inputs: two norms' outputs, attention's, GELU's. Gradients: of both sums with the residual; of q, k, v; of GELU's.
  return 4 * own + (1 + 4 + 3 + 4) * all / shape.tensor.ranks;
}

double kept_share_for_w(const GptShape& shape) {
  return static_cast<double>(kept_for_w_bytes_a_layer(shape)) / static_cast<double>(kept_bytes_a_layer(shape));
}

parallel::BytesByKind memory_need(const TrainStep& made, const GptShape& shape, const TrainLayout& layout,
                                  std::int32_t rank) {
  const schedules::Schedule schedule = schedule_of(layout);
  const auto place = static_cast<std::size_t>(coordinates_of(layout, rank).pp);
  const double under_way = schedules::count_ranks(schedule, kept_share_for_w(shape))[place].peak.until_weight_gradient;
  parallel::BytesByKind need = {};
  std::int64_t kept = 0;
  std::int64_t heads = 0;  // whose logits are there, or their gradient, from the forward to the weight gradient
  for (const std::int32_t s : stages_of(made, layout, rank)) {
    const StagePlan& plan = made.stages[static_cast<std::size_t>(s)];
    add(need, parameter_bytes(plan, shape, layout));
    kept += plan.place.layers * kept_bytes_a_layer(shape);
    if (plan.place.head) heads = most_until_w(schedule.of_rank[place], s);
  }
  GptShape whole_layer = shape;
  whole_layer.recompute = Recompute::none;
  const std::int64_t again = shape.recompute == Recompute::full ? kept_bytes_a_layer(whole_layer) : 0;
  // Opposite pipes share what is under way between them: a stage of each is here.
  const auto under_way_bytes = static_cast<std::int64_t>(under_way * static_cast<double>(kept) / schedule.num_pipes());
  const std::int64_t logits = heads * logit_bytes(shape);
  const std::int64_t other_logits = std::max<std::int64_t>(0, heads - 1) * logit_bytes(shape);
  of(need, MemoryKind::activations) += under_way_bytes + again + std::max(working_bytes(shape) + other_logits, logits);
  return need;
}

namespace {

// Throws where these ranks need more than is available at this place: "this host", "cuda:0".
void check_ranks(const TrainStep& made, const GptShape& shape, const TrainLayout& layout,
                 std::span<const std::int32_t> ranks, std::int64_t available_bytes, const std::string& place) {
  parallel::BytesByKind all = {};
  for (const std::int32_t rank : ranks) add(all, memory_need(made, shape, layout, rank));
  const std::int64_t needed = parallel::total_of(all);
  if (needed <= available_bytes) return;
  const bool activations = of(all, MemoryKind::activations) > needed / 2;
  const std::string wider = replicas_of(layout) > 1 ? "a larger --shard-ranks, " : "";
  throw core::usage_error(
      shape.config.name + " on " + std::to_string(ranks.size()) + " ranks of " + place + " needs about " +
      core::format_size(needed) + " (" + core::format_size(of(all, MemoryKind::activations)) +
      " of it activations), and there are " + core::format_size(available_bytes) + "; what helps: " +
      (activations ? "--recompute full, a smaller --batch with more --microbatches, or a smaller --length"
                   : wider + "--dtype bf16, --zero 3 with more --dp, or a smaller --model"));
}

}  // namespace

void check_memory(const TrainStep& made, const GptShape& shape, const TrainLayout& layout,
                  std::int64_t available_bytes) {
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(layout.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  check_ranks(made, shape, layout, ranks, available_bytes, "this host");
}

void check_gpu_memory(const TrainStep& made, const GptShape& shape, const TrainLayout& layout,
                      const std::vector<GpuRoom>& gpus) {
  for (const GpuRoom& gpu : gpus) check_ranks(made, shape, layout, gpu.ranks, gpu.free_bytes, gpu.name);
}

}  // namespace lockstep::trainer
