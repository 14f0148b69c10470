// Converts arrays of one float type to another, and writes with non-temporal stores, for sources that use Highway:
// included once per target.
#if defined(LOCKSTEP_KERNELS_BASE_VECTOR_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_BASE_VECTOR_CONVERT_INL_H_
#undef LOCKSTEP_KERNELS_BASE_VECTOR_CONVERT_INL_H_
#else
#define LOCKSTEP_KERNELS_BASE_VECTOR_CONVERT_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/base/vector_fp8-inl.h"
#include "kernels/base/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads and stores pairs with elements in order, whatever T's own order of pairs is.
template <class T>
HWY_INLINE Pair load_ordered(const T* from) {
  return load_pair(from);
}
HWY_INLINE Pair load_ordered(const core::BFloat16* from) {
  return {load(from), load(from + lanes_f32())};
}
template <class T>
HWY_INLINE void store_ordered(Pair value, T* to) {
  store_pair(value, to);
}
HWY_INLINE void store_ordered(Pair value, core::BFloat16* to) {
  store(value.a, to);
  store(value.b, to + lanes_f32());
}

HWY_INLINE Pair scaled(Pair value, VF32 factor) {
  return {hn::Mul(value.a, factor), hn::Mul(value.b, factor)};
}

// y = x * scale in f32, rounded to To.
template <class From, class To>
void convert_elems(const From* x, To* y, std::size_t count, float scale) {
  const VF32 factor = hn::Set(F32(), scale);
  const std::size_t step = pair_elems();
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    prefetch_ahead(x + i, step * sizeof(From));
    prefetch_ahead(y + i, step * sizeof(To));
    store_ordered(scaled(load_ordered(x + i), factor), y + i);
  }
  if (i == count) return;
  HWY_ALIGN From from[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)] = {};
  HWY_ALIGN To to[std::size_t{2} * HWY_MAX_BYTES / sizeof(float)];
  std::memcpy(from, x + i, (count - i) * sizeof(From));
  store_ordered(scaled(load_ordered(from), factor), to);
  std::memcpy(y + i, to, (count - i) * sizeof(To));
}

// Copies with non-temporal stores, except for the lines shared with adjacent data. hwy::FlushStream() must follow
// before another thread reads.
inline void stream_copy(const void* from, void* to, std::size_t size_bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* source = static_cast<const std::uint8_t*>(from);
  auto* destination = static_cast<std::uint8_t*>(to);
  const std::size_t past = reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
  const std::size_t wanted = past == 0 ? 0 : kLineBytes - past;
  const std::size_t head = wanted < size_bytes ? wanted : size_bytes;
  std::memcpy(destination, source, head);
  const std::size_t end = head + (size_bytes - head) / kLineBytes * kLineBytes;
  for (std::size_t i = head; i < end; i += kLineBytes) {
    prefetch_ahead(source + i, kLineBytes);
    for (std::size_t k = 0; k < kLineBytes; k += lanes) {
      hn::Stream(hn::LoadU(d, source + i + k), d, destination + i + k);
    }
  }
  std::memcpy(destination + end, source + end, size_bytes - end);
}

// Calls produce(begin, count, destination) for blocks of y's elements. If y is to be written with non-temporal stores,
// blocks go through a buffer in the L1 cache. Blocks begin at multiples of `unit` elements.
template <class T, class Produce>
HWY_INLINE void produce_elems(T* y, std::size_t count, bool stream, std::size_t unit, const Produce& produce) {
  constexpr std::size_t kBufferElems = 4096 / sizeof(T);
  const std::size_t step = kBufferElems / unit * unit;
  if (!stream || step == 0) return produce(std::size_t{0}, count, y);
  HWY_ALIGN T buffer[kBufferElems];
  for (std::size_t i = 0; i < count; i += step) {
    const std::size_t elems = count - i < step ? count - i : step;
    produce(i, elems, static_cast<T*>(buffer));
    stream_copy(buffer, y + i, elems * sizeof(T));
  }
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
