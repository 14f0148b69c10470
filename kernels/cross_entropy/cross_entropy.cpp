// Passes over a row of logits on the CPU.
//
// A row is walked in chunks that fit the L1 cache. A chunk's numerators are taken relative to the largest logit so far,
// so that one pass over memory finds both maximum and sum (Milakov, Gimelshein 2018, arXiv:1805.02867, but with one
// correction per chunk instead of per logit), and exp is computed once per logit. If logits are kept unchanged until
// the sum is known, the first chunk's largest logit is used until a later logit is far above it.
#include "kernels/cross_entropy/cross_entropy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy/cross_entropy.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_map-inl.h"
#include "kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// Below every logit but -infinity: the initial maximum, from which -infinity can be subtracted without a NaN.
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr std::size_t kChunk = 2048;  // logits
// Distance in logits by which a walk over numerators prefetches, so that the L2 cache works while the processor
// calculates.
constexpr std::size_t kAhead = 512;

// Relative error allowed for the exponential, so that it is far below the rounding of a result and below the rounding
// of an f32 sum.
template <class T>
constexpr int kExpDegree = std::is_same_v<T, float> ? 5 : 4;

// Prefetches the next row while this one is computed: between chunks no loads of this row are in flight, and the
// hardware prefetcher does not cross a page boundary.
class NextRow {
 public:
  NextRow() = default;
  template <class T>
  NextRow(const T* row, std::size_t columns)
      : at_(reinterpret_cast<const std::byte*>(row)), end_(reinterpret_cast<const std::byte*>(row + columns)) {}
  template <std::size_t kBytes>
  HWY_INLINE void step() {
    constexpr std::size_t kLine = 64;
    if (at_ >= end_) return;
    for (std::size_t b = 0; b < kBytes; b += kLine) __builtin_prefetch(at_ + b, 0, 2);  // into the L2 cache
    at_ += kBytes;
  }

 private:
  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;
};
// Number of quarters of a pair of T that one step of a walk prefetches.
template <class T, std::size_t kQuarters>
constexpr std::size_t kStepBytes = std::size_t{2} * HWY_MAX_BYTES / sizeof(float) * sizeof(T) * kQuarters / 4;

// Prefetches into the L1 cache; the address may lie past the array's end.
template <class T>
HWY_INLINE void ask_for_pair(const T* at) {
  constexpr std::size_t kLine = 64;
  for (std::size_t b = 0; b < pair_elems() * sizeof(T); b += kLine) {
    __builtin_prefetch(reinterpret_cast<const std::byte*>(at) + b, 0, 3);
  }
}

template <class T>
float chunk_max(const T* x, std::size_t count, float so_far) {
  const F32 d;
  const VF32 lowest = hn::Set(d, kLowest);
  Pair max{hn::Set(d, so_far), hn::Set(d, so_far)};
  for_pairs<T>(count, [&](std::size_t i, auto part) HWY_ATTR {
    const Pair value = part.or_else(part.load(x + i), lowest);
    max = {hn::Max(max.a, value.a), hn::Max(max.b, value.b)};
  });
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(max.a, max.b)));
}

// Returns the sum of e^(x - max) and passes each pair of its terms to keep(pair, i, part).
template <class T, class Keep>
HWY_INLINE float chunk_exp_sum(const T* x, std::size_t count, float max, const Keep& keep) {
  const F32 d;
  const VF32 high = hn::Set(d, max);
  Pair sum{hn::Zero(d), hn::Zero(d)};
  for_pairs<T>(count, [&](std::size_t i, auto part) HWY_ATTR {
    ask_for_pair(x + i + kChunk);
    const Pair value = part.load(x + i);
    const Pair e{weight_f32<kExpDegree<T>>(hn::Sub(value.a, high)), weight_f32<kExpDegree<T>>(hn::Sub(value.b, high))};
    keep(e, i, part);
    const Pair counted = part.or_else(e, hn::Zero(d));
    sum = {hn::Add(sum.a, counted.a), hn::Add(sum.b, counted.b)};
  });
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(sum.a, sum.b)));
}

// Returns e^(low - high), and 1 without calling exp if they are equal, which is the usual case.
HWY_INLINE float decrease(float low, float high) {
  return low == high ? 1.0F : std::exp(low - high);
}

// Sum of e^(logit - max) over a row. `max` is the largest of kLowest and the logits of the chunks searched so far.
struct MaxAndSum {
  float max = kLowest;
  float sum = 0;
  HWY_INLINE void raise(float to) {
    sum *= decrease(max, to);
    max = to;
  }
};

// For each chunk, take_chunk(begin, count, max) returns the sum of its numerators relative to that maximum. With kAgain
// it may be called a second time: a chunk's largest logit is then searched only if there is no maximum yet, or if the
// sum shows that the logit is far above the known maximum, or is not a number; log(sum) stays exact enough.
template <bool kAgain, class T, class TakeChunk>
HWY_INLINE MaxAndSum max_and_sum(const T* logits, std::size_t valid, const TakeChunk& take_chunk) {
  constexpr float kMostSum = 1e7F;
  MaxAndSum row;
  for (std::size_t begin = 0; begin < valid; begin += kChunk) {
    const std::size_t count = std::min(kChunk, valid - begin);
    const auto raise = [&]() HWY_ATTR { row.raise(chunk_max(logits + begin, count, row.max)); };
    if (!kAgain || begin == 0) raise();
    float sum = take_chunk(begin, count, row.max);
    if (kAgain && !(sum <= kMostSum)) {
      raise();
      sum = take_chunk(begin, count, row.max);
    }
    row.sum += sum;
  }
  return row;
}

// Keeps a row's numerators until its sum is known: in the row itself if it is f32, else in `memory`, in the lane order
// of T's pairs.
template <class T>
struct Numerators {
  static constexpr bool kInPlace = std::is_same_v<T, float>;
  float* memory;
  HWY_INLINE void ask_for(std::size_t i) const { ask_for_pair(memory + i); }
  template <class Part>
  HWY_INLINE void store(Pair e, std::size_t i, const Part& part) const {
    if constexpr (kInPlace) {
      part.store(e, memory + i);
    } else {
      store_pair(e, memory + i);
    }
  }
  template <class Part>
  HWY_INLINE Pair load(std::size_t i, const Part& part) const {
    if constexpr (kInPlace) {
      return part.load(memory + i);
    } else {
      return load_pair(memory + i);
    }
  }
};

// Sets logits[begin, begin + count) to factor * numerators.
template <class T>
void scale_chunk(const Numerators<T>& numerators, T* logits, std::size_t begin, std::size_t count, float factor,
                 NextRow& next) {
  const VF32 by = hn::Set(F32(), factor);
  for_pairs<T>(count, [&](std::size_t i, auto part) HWY_ATTR {
    next.step<kStepBytes<T, 1>>();
    numerators.ask_for(begin + i + kAhead);
    if constexpr (!Numerators<T>::kInPlace) ask_for_pair(logits + begin + i + kAhead);
    const Pair e = numerators.load(begin + i, part);
    store_result(part, {hn::Mul(by, e.a), hn::Mul(by, e.b)}, logits + begin + i);
  });
}

// Sets logits to factor * e^(logits - max).
template <class T>
void scaled_exp(T* logits, std::size_t count, float max, float factor) {
  const VF32 by = hn::Set(F32(), factor);
  chunk_exp_sum(logits, count, max, [&](const Pair& e, std::size_t i, const auto& part) HWY_ATTR {
    store_result(part, {hn::Mul(e.a, by), hn::Mul(e.b, by)}, logits + i);
  });
}

template <class T>
HWY_INLINE float one_element(const T* from) {
  return hn::GetLane(load_tail(from, 1));
}
template <class T>
HWY_INLINE void set_element(float value, T* to) {
  store_tail(hn::Set(F32(), value), to, 1);
}

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
  check_sizes(kernel, {{"rows", rows}, {"columns", columns}});
  check_at_least(kernel, "valid_columns", valid_columns, least_valid);
  check_at_most(kernel, "valid_columns", valid_columns, columns, "the columns");
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
  return cost_of_operands(6 * cells(args.rows, args.valid_columns) + 3.0 * static_cast<double>(args.rows), args);
}

Cost cost_of(const CrossEntropyStats& args) {
  return cost_of_operands(3 * cells(args.rows, args.valid_columns), args);
}

// FLOPs per valid column as above without the sum; a shard's stats cost 5 per row: max - max, exp, *, +, + of the
// target's logit.
Cost cost_of(const CrossEntropyFinish& args) {
  const double of_a_row = 3.0 + 5.0 * static_cast<double>(args.shards);
  return cost_of_operands(5 * cells(args.rows, args.valid_columns) + static_cast<double>(args.rows) * of_a_row, args);
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
