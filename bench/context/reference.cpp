#include "bench/context/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "core/narrow_float.h"
#include "core/wait.h"
#include "kernels/attention/attention.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"

namespace lockstep::context_bench {
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
  double largest = 0;
  for (const float value : all) largest = std::max(largest, std::fabs(static_cast<double>(value)));
  const Values wanted = rows_of(layer, all);
  double worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const double error = std::fabs(static_cast<double>(found[i]) - static_cast<double>(wanted[i]));
    if (std::isnan(error)) return std::numeric_limits<double>::quiet_NaN();
    worst = std::max(worst, error);
  }
  return worst / largest;
}

double allowed_difference(const parallel::ContextLayer& layer) {
  if (layer.dtype == core::DType::f32) return 1e-5;
  constexpr double kUnit = 0x1p-9;  // half a unit in the last place of bf16
  // One rounding for each term and each sum, and those of attention's own factors.
  return 2 * (layer.shape.ranks + 4) * kUnit;
}

}  // namespace lockstep::context_bench
