// Passes over a row of logits, for sources that use Highway: included once a target.
//
// A row is walked in chunks that fit the first-level cache. A chunk's numerators are taken relative to the largest
// logit so far, so that one walk through memory serves both maximum and sum (Milakov, Gimelshein 2018,
// arXiv:1805.02867, with a correction a chunk instead of a logit), and exp is taken once a logit.
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

#include "kernels/base/vector_io-inl.h"
#include "kernels/base/vector_weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Below every logit but -infinity: the first maximum, from which -infinity can be subtracted without a NaN.
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr std::size_t kChunk = 2048;  // logits

template <class T>
HWY_INLINE VF32 load_or_lowest(const T* from, std::size_t count) {
  const F32 d;
  return hn::IfThenElse(hn::FirstN(d, count), load_tail(from, count), hn::Set(d, kLowest));
}

template <class T>
float chunk_max(const T* x, std::size_t count, float so_far) {
  const F32 d;
  const std::size_t lanes = lanes_f32();
  VF32 even = hn::Set(d, so_far);
  VF32 odd = even;
  std::size_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    even = hn::Max(even, load(x + i));
    odd = hn::Max(odd, load(x + i + lanes));
  }
  for (; i + lanes <= count; i += lanes) even = hn::Max(even, load(x + i));
  if (i < count) odd = hn::Max(odd, load_or_lowest(x + i, count - i));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(even, odd)));
}

// The sum of e^(x - max), each of which is given to keep(value, i, count) for `count` elements from the i-th.
template <class T, class Keep>
HWY_INLINE float chunk_exp_sum(const T* x, std::size_t count, float max, const Keep& keep) {
  const F32 d;
  const std::size_t lanes = lanes_f32();
  const VF32 high = hn::Set(d, max);
  VF32 sum = hn::Zero(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const VF32 e = weight_f32(hn::Sub(load(x + i), high));
    keep(e, i, lanes);
    sum = hn::Add(sum, e);
  }
  if (i < count) {
    const VF32 e = hn::IfThenElseZero(hn::FirstN(d, count - i), weight_f32(hn::Sub(load_tail(x + i, count - i), high)));
    keep(e, i, count - i);
    sum = hn::Add(sum, e);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// A row's maximum, or kLowest, and sum of e^(logit - max). For each chunk, take_chunk(begin, count, max) has to return
// the sum of its numerators relative to that maximum.
struct MaxAndSum {
  float max = kLowest;
  float sum = 0;
};
template <class T, class TakeChunk>
HWY_INLINE MaxAndSum max_and_sum(const T* logits, std::size_t valid, const TakeChunk& take_chunk) {
  MaxAndSum row;
  for (std::size_t begin = 0; begin < valid; begin += kChunk) {
    const std::size_t count = std::min(kChunk, valid - begin);
    const float max = chunk_max(logits + begin, count, row.max);
    if (max != row.max) row.sum *= std::exp(row.max - max);
    row.max = max;
    row.sum += take_chunk(begin, count, max);
  }
  return row;
}

// to = factor * numerators.
template <class T>
void scale_chunk(const float* numerators, T* to, std::size_t count, float factor) {
  const VF32 by = hn::Set(F32(), factor);
  const std::size_t lanes = lanes_f32();
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) store(hn::Mul(load(numerators + i), by), to + i);
  if (i < count) store_tail(hn::Mul(load_tail(numerators + i, count - i), by), to + i, count - i);
}

// logits = factor * e^(logits - max).
template <class T>
void scaled_exp(T* logits, std::size_t count, float max, float factor) {
  const F32 d;
  const VF32 by = hn::Set(d, factor);
  const auto keep = [&](VF32 e, std::size_t i, std::size_t lanes) {
    if (lanes == lanes_f32()) {
      store(hn::Mul(e, by), logits + i);
    } else {
      store_tail(hn::Mul(e, by), logits + i, lanes);
    }
  };
  chunk_exp_sum(logits, count, max, keep);
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
