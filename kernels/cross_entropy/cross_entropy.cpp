#include "kernels/cross_entropy/cross_entropy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy/cross_entropy.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/cross_entropy/cross_entropy_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE bool has_target(std::int64_t target, std::int64_t valid_columns) {
  return target >= 0 && target < valid_columns;
}

// Stores the gradient at the target, probability - 1, recomputed from the target's logit because the row holds the
// probability already rounded and scaled.
template <class T>
void finish_target(float target_logit, const MaxAndSum& row, float scale, T* gradient) {
  set_element(scale * (std::exp(target_logit - row.max) / row.sum - 1), gradient);
}

// Computes one row and returns its loss. `memory` has space for the row in f32, in whole vector pairs, and one float
// per chunk.
template <class T>
float whole_row(const CrossEntropy& args, T* logits, std::int64_t target, float* memory, NextRow next) {
  const auto valid = static_cast<std::size_t>(args.valid_columns);
  const std::size_t chunks = (valid + kChunk - 1) / kChunk;
  float* const chunk_maxima = memory + chunks * kChunk;
  Numerators<T> numerators{memory};
  if constexpr (Numerators<T>::kInPlace) numerators.memory = logits;
  const float target_logit = one_element(logits + target);
  const auto take_chunk = [&](std::size_t begin, std::size_t count, float max) HWY_ATTR {
    chunk_maxima[begin / kChunk] = max;
    const auto keep = [&](const Pair& e, std::size_t i, const auto& part) HWY_ATTR {
      next.step<kStepBytes<T, 3>>();
      numerators.store(e, begin + i, part);
    };
    return chunk_exp_sum(logits + begin, count, max, keep);
  };
  const MaxAndSum row = max_and_sum<!Numerators<T>::kInPlace>(logits, valid, take_chunk);
  const float factor = args.scale / row.sum;
  for (std::size_t begin = 0; begin < valid; begin += kChunk) {
    const float correction = decrease(chunk_maxima[begin / kChunk], row.max);
    scale_chunk(numerators, logits, begin, std::min(kChunk, valid - begin), factor * correction, next);
  }
  finish_target(target_logit, row, args.scale, logits + target);
  std::fill(logits + valid, logits + args.columns, T{});
  return std::log(row.sum) + (row.max - target_logit);
}

// Returns the row to prefetch while row n of `end` rows is computed; none if rows are short.
template <class T>
HWY_INLINE NextRow next_row(const T* row, std::int64_t columns, std::int64_t n, std::int64_t end) {
  if (n + 1 == end || columns < static_cast<std::int64_t>(kChunk)) return {};
  return NextRow(row + columns, static_cast<std::size_t>(columns));
}

void whole_rows(const CrossEntropy& args, std::int64_t begin, std::int64_t end, float* memory) {
  with_activation_type(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* targets = args.targets.as<std::int32_t>();
    for (std::int64_t n = begin; n < end; ++n) {
      T* const row = args.logits.as<T>() + n * args.columns;
      args.losses.as<float>()[n] = whole_row(args, row, targets[n], memory, next_row(row, args.columns, n, end));
    }
  });
}

template <class T>
void stats_row(const CrossEntropyStats& args, const T* logits, std::int64_t target, NextRow next, float* stats) {
  const auto valid = static_cast<std::size_t>(args.valid_columns);
  const auto take_chunk = [&](std::size_t begin, std::size_t count, float max) HWY_ATTR {
    return chunk_exp_sum(logits + begin, count, max,
                         [&](const Pair&, std::size_t, const auto&) HWY_ATTR { next.step<kStepBytes<T, 4>>(); });
  };
  const MaxAndSum row = max_and_sum<false>(logits, valid, take_chunk);
  stats[0] = row.sum == 0 ? -std::numeric_limits<float>::infinity() : row.max;
  stats[1] = row.sum;
  stats[2] = has_target(target, args.valid_columns) ? one_element(logits + target) : 0.0F;
}

void stats_rows(const CrossEntropyStats& args, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* targets = args.targets.as<std::int32_t>();
    for (std::int64_t n = begin; n < end; ++n) {
      const T* const row = args.logits.as<T>() + n * args.columns;
      stats_row(args, row, targets[n] - args.first_id, next_row(row, args.columns, n, end),
                args.stats.as<float>() + 3 * n);
    }
  });
}

struct Merged {
  MaxAndSum row = {-std::numeric_limits<float>::infinity(), 0};
  float target_logit = 0;
};
Merged merged(const CrossEntropyFinish& args, std::int64_t n) {
  const auto* const stats = args.stats.as<float>() + 3 * n;
  const std::int64_t stride = 3 * args.rows;
  Merged all;
  for (std::int64_t s = 0; s < args.shards; ++s) all.row.max = std::max(all.row.max, stats[s * stride]);
  for (std::int64_t s = 0; s < args.shards; ++s) {
    all.row.sum += stats[s * stride + 1] * std::exp(stats[s * stride] - all.row.max);
    all.target_logit += stats[s * stride + 2];
  }
  return all;
}

// Computes one row of a shard and returns its loss.
template <class T>
float shard_row(const CrossEntropyFinish& args, T* logits, std::int64_t target, const Merged& all) {
  const auto valid = static_cast<std::size_t>(args.valid_columns);
  const bool here = has_target(target, args.valid_columns);
  const float target_logit = here ? one_element(logits + target) : 0.0F;
  scaled_exp(logits, valid, all.row.max, args.scale / all.row.sum);
  if (here) finish_target(target_logit, all.row, args.scale, logits + target);
  std::fill(logits + valid, logits + args.columns, T{});
  return std::log(all.row.sum) + (all.row.max - all.target_logit);
}

void shard_rows(const CrossEntropyFinish& args, std::int64_t begin, std::int64_t end) {
  with_activation_type(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* targets = args.targets.as<std::int32_t>();
    for (std::int64_t n = begin; n < end; ++n) {
      args.losses.as<float>()[n] =
          shard_row(args, args.logits.as<T>() + n * args.columns, targets[n] - args.first_id, merged(args, n));
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(whole_rows);
HWY_EXPORT(stats_rows);
HWY_EXPORT(shard_rows);

void check_columns(std::string_view kernel, std::int64_t rows, std::int64_t columns, std::int64_t valid_columns,
                   std::int64_t least_valid) {
  check_at_least(kernel, "rows", rows, 1);
  check_at_least(kernel, "columns", columns, 1);
  check_at_least(kernel, "valid_columns", valid_columns, least_valid);
  if (valid_columns <= columns) return;
  throw core::usage_error(
      fmt::format("{}: valid_columns is {}; allowed: at most columns, {}", kernel, valid_columns, columns));
}

void check_targets(std::string_view kernel, const In& targets, std::int64_t end) {
  const auto* ids = targets.as<std::int32_t>();
  for (std::int64_t n = 0; n < targets.elems; ++n) {
    if (ids[n] >= 0 && ids[n] < end) continue;
    throw core::usage_error(fmt::format("{}: targets[{}] is {}; allowed: 0 to {}", kernel, n, ids[n], end - 1));
  }
}

// Largest target id + 1 that a shard accepts: a shard does not know how long the vocabulary is.
constexpr std::int64_t kAnyId = std::int64_t{1} << 31;

double cells(std::int64_t rows, std::int64_t valid_columns) {
  return static_cast<double>(rows) * static_cast<double>(valid_columns);
}

}  // namespace

void CrossEntropy::check_shape() const {
  check_columns(name(), rows, columns, valid_columns, 1);
}

void CrossEntropyStats::check_shape() const {
  check_columns(name(), rows, columns, valid_columns, 0);
  check_at_least(name(), "first_id", first_id, 0);
}

void CrossEntropyFinish::check_shape() const {
  check_columns(name(), rows, columns, valid_columns, 0);
  check_at_least(name(), "first_id", first_id, 0);
  check_at_least(name(), "shards", shards, 1);
}

// FLOPs per valid column: logit - max, exp, addition to the sum; division, subtraction at the target, scale. Per row:
// log, +, -.
Cost cost_of(const CrossEntropy& args) {
  return {6 * cells(args.rows, args.valid_columns) + 3.0 * static_cast<double>(args.rows), operand_bytes(args), ""};
}

Cost cost_of(const CrossEntropyStats& args) {
  return {3 * cells(args.rows, args.valid_columns), operand_bytes(args), ""};
}

// FLOPs per valid column as above without the sum; a shard's stats cost 5 per row: max - max, exp, *, +, + of the
// target's logit.
Cost cost_of(const CrossEntropyFinish& args) {
  const double rows = static_cast<double>(args.rows);
  return {5 * cells(args.rows, args.valid_columns) + rows * (3.0 + 5.0 * static_cast<double>(args.shards)),
          operand_bytes(args), ""};
}

void run_cpu(const CrossEntropy& args, ThreadPool& pool) {
  check_targets(args.name(), args.targets, args.valid_columns);
  constexpr auto kChunk = static_cast<std::int64_t>(HWY_NAMESPACE::kChunk);
  const std::int64_t chunks = (args.valid_columns + kChunk - 1) / kChunk;
  const auto memory_elems = static_cast<std::size_t>(chunks * (kChunk + 1));
  pool.for_pieces(pool.size(), [&](std::int64_t piece, int thread) {
    const std::int64_t begin = args.rows * piece / pool.size();
    const std::int64_t end = args.rows * (piece + 1) / pool.size();
    float* const memory = pool.scratch_of<float>(thread, memory_elems).data();
    HWY_DYNAMIC_DISPATCH(whole_rows)(args, begin, end, memory);
  });
}

void run_cpu(const CrossEntropyStats& args, ThreadPool& pool) {
  check_targets(args.name(), args.targets, kAnyId);
  pool.for_ranges(args.rows, 1, [&](auto begin, auto end) { HWY_DYNAMIC_DISPATCH(stats_rows)(args, begin, end); });
}

void run_cpu(const CrossEntropyFinish& args, ThreadPool& pool) {
  check_targets(args.name(), args.targets, kAnyId);
  pool.for_ranges(args.rows, 1, [&](auto begin, auto end) { HWY_DYNAMIC_DISPATCH(shard_rows)(args, begin, end); });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
