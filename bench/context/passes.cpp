#include "bench/context/seqpar.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>

#include "bench/step/values.h"
#include "core/dtype.h"
#include "core/error.h"
#include "kernels/attention/attention.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "schedules/step/rewrite.h"
#include "simulator/engine/engine.h"
#include "simulator/machine/machine.h"
#include "simulator/network/collective_time.h"
#include "workload/operations.h"

namespace lockstep::context_bench {

using step_bench::TaskKind;

step_bench::LayerBlock block_of(const workload::ContextLayer& layer) {
  using Kind = workload::OperationKind;
  step_bench::LayerBlock block;
  workload::Model& model = block.model;
  model.layers = 1;
  model.heads = layer.heads;
  model.kv_heads = layer.kv_heads;
  model.head_size = layer.head_columns;
  model.hidden = layer.query_columns();
  model.sequence = layer.length;
  model.ffn_hidden = 1;  // the MLP does not run
  model.dropout = false;
  block.layout.cp = layer.shape.ranks;
  block.layout.cp_way = layer.shape.way;
  block.layout.compute = layer.dtype;
  block.layout.microbatch_size = layer.batch;
  block.block = trainer::GptStage::Block::core;
  block.kinds = {Kind::split_heads,   Kind::exchange_context, Kind::core,
                 Kind::merge_context, Kind::scores,           Kind::values};
  block.causal = layer.shape.causal;
  block.share_of = [](Kind kind, bool is_exchange) {
    const bool is_core = kind == Kind::core || kind == Kind::scores || kind == Kind::values;
    return static_cast<std::size_t>(is_exchange ? TaskKind::exchange
                                    : is_core   ? TaskKind::product
                                                : TaskKind::other_kernel);
  };
  return block;
}

namespace {

constexpr double kPsPerUs = 1e6;
constexpr double kNoLimit = 1e9;  // GB/s

simulator::Machine machine_of(const transports::LinkSpec& link) {
  simulator::Machine machine;
  machine.levels = {
      {.name = "link", .ranks = 1 << 20, .gbps = link.gbps > 0 ? link.gbps : kNoLimit, .latency_us = link.latency_us}};
  return machine;
}

std::int64_t ps(double us) {
  return std::llround(us * kPsPerUs);
}

}  // namespace

double simulated_us(const workload::ContextLayer& layer, Direction direction,
                    const std::vector<std::vector<double>>& kernel_us, const transports::LinkSpec& link) {
  schedules::Step step = step_bench::step_of(block_of(layer));
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    std::vector<schedules::Task>& tasks = step.of_rank[r].tasks;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].comm == schedules::Comm::none) tasks[i].amount = ps(kernel_us[r][i]);
    }
  }
  schedules::leave_out(step, [direction](const schedules::Task& task) {
    const bool is_forward = workload::piece_named(task.what).side == workload::Side::forward;
    return is_forward != (direction == Direction::forward);
  });
  const simulator::Machine machine = machine_of(link);
  const std::vector<std::int64_t> members{layer.shape.ranks};
  const auto time_of = [&](const schedules::Group&, const schedules::Task& task) {
    return ps(best_collective(machine, task.comm, static_cast<double>(task.amount), members).time_us());
  };
  const simulator::OneSwitch nothing_sent(layer.shape.ranks, 0);
  return static_cast<double>(simulate(step, nothing_sent, time_of).makespan_ps) / kPsPerUs;
}

namespace {

using Values = std::vector<float>;

Values drawn(std::int64_t count, std::uint64_t seed, core::DType dtype) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 1);
  Values values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = normal(random);
    if (dtype != core::DType::f32) value = core::to_float(core::to_bfloat16(value));
  }
  return values;
}

kernels::In in(const Values& values, std::int64_t first, std::int64_t elems) {
  return {values.data() + first, core::DType::f32, elems};
}
kernels::Out out(Values& values, std::int64_t first, std::int64_t elems) {
  return {values.data() + first, core::DType::f32, elems};
}

// Calls visit(first element, elements) for each run of rows of the rank, in the order of its tokens.
template <class Visit>
void for_runs(const parallel::ContextLayer& layer, std::size_t elems, const Visit& visit) {
  const std::int64_t columns = static_cast<std::int64_t>(elems) / (layer.batch * layer.length);
  for (std::int64_t b = 0; b < layer.batch; ++b) {
    for (const std::int32_t chunk : workload::chunks_of(layer.shape, layer.rank)) {
      visit((b * layer.length + chunk * layer.chunk()) * columns, layer.chunk() * columns);
    }
  }
}

}  // namespace

Whole reference_of(const parallel::ContextLayer& layer, int threads) {
  const std::int64_t rows = layer.batch * layer.length;
  Whole whole{.qkv = drawn(rows * layer.fused_columns(), step_bench::kLayerSeed, layer.dtype),
              .d_o = drawn(rows * layer.query_columns(), step_bench::kLayerSeed + 1, layer.dtype),
              .o = Values(static_cast<std::size_t>(rows * layer.query_columns())),
              .d_qkv = Values(static_cast<std::size_t>(rows * layer.fused_columns()))};
  Values lse(static_cast<std::size_t>(rows * layer.heads));
  kernels::ThreadPool pool(threads);
  const kernels::Context where(pool);
  const kernels::AttentionShape shape{.batch = layer.batch,
                                      .heads = layer.heads,
                                      .queries = layer.length,
                                      .keys = layer.length,
                                      .head_columns = layer.head_columns,
                                      .causal = layer.shape.causal,
                                      .qkv_stride = layer.fused_columns(),
                                      .kv_heads = layer.kv_heads};
  const std::int64_t row = layer.query_columns();
  const std::int64_t extent = shape.extent();
  const std::int64_t key_extent = shape.key_extent();
  const std::int64_t keys = row + layer.key_columns();  // start of the values
  const auto elems_of = [](const Values& values) { return static_cast<std::int64_t>(values.size()); };
  kernels::run(kernels::AttentionForward{.shape = shape,
                                         .q = in(whole.qkv, 0, extent),
                                         .k = in(whole.qkv, row, key_extent),
                                         .v = in(whole.qkv, keys, key_extent),
                                         .o = out(whole.o, 0, elems_of(whole.o)),
                                         .lse = out(lse, 0, elems_of(lse))},
               where);
  kernels::run(kernels::AttentionBackward{.shape = shape,
                                          .q = in(whole.qkv, 0, extent),
                                          .k = in(whole.qkv, row, key_extent),
                                          .v = in(whole.qkv, keys, key_extent),
                                          .o = in(whole.o, 0, elems_of(whole.o)),
                                          .lse = in(lse, 0, elems_of(lse)),
                                          .d_o = in(whole.d_o, 0, elems_of(whole.d_o)),
                                          .dq = out(whole.d_qkv, 0, extent),
                                          .dk = out(whole.d_qkv, row, key_extent),
                                          .dv = out(whole.d_qkv, keys, key_extent)},
               where);
  return whole;
}

Values rows_of(const parallel::ContextLayer& layer, const Values& all) {
  Values own;
  own.reserve(all.size() / static_cast<std::size_t>(layer.shape.ranks));
  for_runs(layer, all.size(), [&](std::int64_t first, std::int64_t elems) {
    own.insert(own.end(), all.begin() + first, all.begin() + first + elems);
  });
  return own;
}

double difference(const parallel::ContextLayer& layer, const Values& found, const Values& all) {
  const Values wanted = rows_of(layer, all);
  double worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double error = std::fabs(static_cast<double>(found[i]) - static_cast<double>(wanted[i]));
    if (std::isnan(error)) return std::numeric_limits<double>::quiet_NaN();
    worst = std::max(worst, error);
  }
  return worst / step_bench::largest_of(all);
}

double allowed_difference(const parallel::ContextLayer& layer) {
  if (layer.dtype == core::DType::f32) return 1e-5;
  constexpr double kUnit = 0x1p-9;  // half a unit in the last place of bf16
  // One rounding for each term and each sum, and those of attention's own factors.
  return 2 * (layer.shape.ranks + 4) * kUnit;
}

}  // namespace lockstep::context_bench
