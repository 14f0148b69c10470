#include "bench/context/seqpar.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "bench/step/values.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/wait.h"
#include "kernels/attention/attention.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "schedules/step/rewrite.h"
#include "simulator/engine/engine.h"
#include "simulator/machine/machine.h"
#include "simulator/network/collective_time.h"
#include "workload/operations.h"

namespace lockstep::context_bench {

using collectives::Kind;
using collectives::Operation;
using schedules::Comm;

Operation operation_of(Comm comm, const parallel::ContextMove& move, int num_ranks) {
  const auto bytes_of = [](const auto& view) {
    return static_cast<std::int64_t>(kernels::size_bytes(view.dtype, view.elems));
  };
  switch (comm) {
    case Comm::shift:
      return {.kind = Kind::all_to_all_v, .dtype = core::DType::u8, .matrix = move.bytes_of_pairs};
    case Comm::all_gather:
      return {.kind = Kind::all_gather, .count = bytes_of(move.input), .dtype = core::DType::u8};
    case Comm::all_to_all:
      return {.kind = Kind::all_to_all, .count = bytes_of(move.input) / num_ranks, .dtype = core::DType::u8};
    default:
      LOCKSTEP_CHECK(comm == Comm::reduce_scatter, "an exchange of context-parallel ranks");
      return {.kind = Kind::reduce_scatter, .count = move.output.elems, .dtype = move.output.dtype};
  }
}

std::vector<workload::Operation> operations_of(const workload::ContextLayer& layer) {
  workload::Model model;
  model.heads = layer.heads;
  model.kv_heads = layer.kv_heads;
  model.head_size = layer.head_columns;
  model.hidden = layer.query_columns();
  model.sequence = layer.length;
  workload::Layout layout;
  layout.cp = layer.shape.ranks;
  layout.cp_way = layer.shape.way;
  layout.compute = layer.dtype;
  layout.microbatch_size = layer.batch;
  return workload::context_operations(model, layout);
}

std::vector<Piece> pieces_of(const std::vector<workload::Operation>& operations, bool backward) {
  std::vector<Piece> pieces;
  int last_kernel = -1;
  int waits_for = -1;   // exchange that the next kernel waits for
  int after_next = -1;  // exchange that the kernel after it waits for
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const workload::Operation& op = operations[backward ? operations.size() - 1 - i : i];
    const int number = static_cast<int>(pieces.size());
    if (op.kind == workload::OperationKind::exchange_context) {
      if ((backward ? op.backward_exchange : op.forward_exchange).comm == schedules::Comm::none) continue;
      pieces.push_back({&op, true, last_kernel});
      const bool beside = backward ? op.beside_backward : op.beside;
      if (!beside) waits_for = number;
      after_next = beside ? number : -1;
      continue;
    }
    if ((backward ? op.input_gradient : op.forward).empty() && op.kind == workload::OperationKind::merge_context)
      continue;
    pieces.push_back({&op, false, waits_for});
    last_kernel = number;
    waits_for = std::exchange(after_next, -1);
  }
  return pieces;
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

schedules::RankStep rank_step(const std::vector<Piece>& pieces, bool backward, const std::vector<double>& kernel_us) {
  schedules::RankWriter rank;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    schedules::Task task{.op = backward ? schedules::Op::backward : schedules::Op::forward};
    if (pieces[i].is_exchange) {
      const workload::Exchange& exchange = backward ? pieces[i].op->backward_exchange : pieces[i].op->forward_exchange;
      task.op = schedules::Op::layer_collective;
      task.lane = schedules::Lane::tensor;
      task.comm = exchange.comm;
      task.peer = 0;
      task.amount = static_cast<std::int64_t>(exchange.bytes);
    } else {
      task.amount = ps(kernel_us[i]);
    }
    const auto after = static_cast<std::uint32_t>(pieces[i].after);
    rank.add(task, std::span(&after, pieces[i].after < 0 ? 0 : 1));
  }
  return rank.take();
}

}  // namespace

double simulated_us(const workload::ContextLayer& layer, const std::vector<Piece>& pieces, bool backward,
                    const std::vector<std::vector<double>>& kernel_us, const transports::LinkSpec& link) {
  schedules::Group all{.kind = schedules::GroupKind::context,
                       .ranks = std::vector<std::int32_t>(static_cast<std::size_t>(layer.shape.ranks))};
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  schedules::Step step{.name = "attention", .groups = {all}};
  for (const std::vector<double>& of_rank : kernel_us) step.of_rank.push_back(rank_step(pieces, backward, of_rank));
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

template <class Args>
double timed_us(const Args& args, const kernels::Context& where) {
  const auto start = core::Clock::now();
  kernels::run(args, where);
  return core::us_between(start, core::Clock::now());
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
  Whole whole{.qkv = drawn(rows * layer.fused_columns(), kSeed, layer.dtype),
              .d_o = drawn(rows * layer.query_columns(), kSeed + 1, layer.dtype),
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
  whole.forward_us = timed_us(kernels::AttentionForward{.shape = shape,
                                                        .q = in(whole.qkv, 0, extent),
                                                        .k = in(whole.qkv, row, key_extent),
                                                        .v = in(whole.qkv, keys, key_extent),
                                                        .o = out(whole.o, 0, elems_of(whole.o)),
                                                        .lse = out(lse, 0, elems_of(lse))},
                              where);
  whole.backward_us = timed_us(kernels::AttentionBackward{.shape = shape,
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
