// Passes over a row of logits, for sources that use Highway: included once per target.
//
// A row is walked in chunks that fit the L1 cache. A chunk's numerators are taken relative to the largest logit so far,
// so that one pass over memory finds both maximum and sum (Milakov, Gimelshein 2018, arXiv:1805.02867, but with one
// correction per chunk instead of per logit), and exp is computed once per logit. If logits are kept unchanged until
// the sum is known, the first chunk's largest logit is used until a later logit is far above it.
#if defined(LOCKSTEP_KERNELS_CROSS_ENTROPY_CROSS_ENTROPY_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_CROSS_ENTROPY_CROSS_ENTROPY_ROWS_INL_H_
#undef LOCKSTEP_KERNELS_CROSS_ENTROPY_CROSS_ENTROPY_ROWS_INL_H_
#else
#define LOCKSTEP_KERNELS_CROSS_ENTROPY_CROSS_ENTROPY_ROWS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>

#include "kernels/base/vector_map-inl.h"
#include "kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Below every logit but -infinity: the initial maximum, from which -infinity can be subtracted without a NaN.
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr std::size_t kChunk = 2048;  // logits
// Distance in logits by which a walk over numerators prefetches, so that the L2 cache works while the processor
// calculates.
constexpr std::size_t kAhead = 512;

// Relative error allowed for the exponential, so that it vanishes beside the rounding of a result and is below that of
// an f32 sum.
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
