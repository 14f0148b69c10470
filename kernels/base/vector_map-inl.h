// Applies a function to each element and stores its results, for sources that use Highway: included once per target.
#if defined(LOCKSTEP_KERNELS_BASE_VECTOR_MAP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_BASE_VECTOR_MAP_INL_H_
#undef LOCKSTEP_KERNELS_BASE_VECTOR_MAP_INL_H_
#else
#define LOCKSTEP_KERNELS_BASE_VECTOR_MAP_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/base/vector_convert-inl.h"
#include "kernels/base/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Stores of a function's results.
//
// Rounds to nearest. A tie between two BFloat16 goes to the larger magnitude (on the scalar target to the even one):
// one addition instead of the four operations of store_numbers in vector_io-inl.h. Meant for results that are ties only
// by chance, such as the results of exp. NaN stays NaN if its lower 16 bits are 0, as in every NaN that BFloat16
// operands or the processor produce.

// Returns the bits of the nearest BFloat16 in the upper half of each lane; the lower half is undefined.
HWY_INLINE hn::Vec<U32> nearest_bfloat16_bits(VF32 value) {
  return hn::Add(hn::BitCast(U32(), value), hn::Set(U32(), 0x8000));
}
template <EvenAndOdd T>
HWY_INLINE auto nearest_bits_of_pair(Pair value) {
  const auto even = hn::ShiftRight<16>(nearest_bfloat16_bits(value.a));
  return hn::OddEven(hn::BitCast(Halves<T>(), nearest_bfloat16_bits(value.b)), hn::BitCast(Halves<T>(), even));
}

// Like part.store and part.stream of for_pairs.
template <class T, class Part>
HWY_INLINE void store_result(const Part& part, Pair value, T* to) {
  part.store(value, to);
}
template <EvenAndOdd T>
HWY_INLINE void store_result(const WholePair<T>& /*part*/, Pair value, T* to) {
  hn::StoreU(nearest_bits_of_pair<T>(value), Halves<T>(), bits_at(to));
}
template <EvenAndOdd T>
HWY_INLINE void store_result(const PartPair<T>& part, Pair value, T* to) {
  part.store(pair_of_bits(nearest_bits_of_pair<T>(value)), to);
}
template <class T, class Part>
HWY_INLINE void stream_result(const Part& part, Pair value, T* to) {
  part.stream(value, to);
}
template <EvenAndOdd T>
HWY_INLINE void stream_result(const WholePair<T>& /*part*/, Pair value, T* to) {
  hn::Stream(nearest_bits_of_pair<T>(value), Halves<T>(), bits_at(to));
}
template <EvenAndOdd T>
HWY_INLINE void stream_result(const PartPair<T>& part, Pair value, T* to) {
  store_result(part, value, to);
}

// Functions of elements.

// Returns how many elements precede the first aligned vector store, at most `count`; fewer than pair_elems().
template <class T>
HWY_INLINE std::size_t elems_to_alignment(const T* at, std::size_t count) {
  const std::size_t vector_bytes = lanes_f32() * sizeof(float);
  const std::size_t past_bytes = reinterpret_cast<std::uintptr_t>(at) % vector_bytes;
  const std::size_t elems = past_bytes == 0 ? 0 : (vector_bytes - past_bytes) / sizeof(T);
  return elems < count ? elems : count;
}

template <class Function, class... Pairs>
HWY_INLINE Pair applied(const Function& function, Pairs... in) {
  return {function(in.a...), function(in.b...)};
}

// True if results halfway between two BFloat16 are rare and need not be rounded to even, which is faster.
template <class Function>
concept TiesAreRare = requires {
  requires Function::kTiesAreRare;
};

template <class Function, bool kStream, class Part, class T>
HWY_INLINE void put_pair(const Part& part, Pair value, T* to) {
  if constexpr (TiesAreRare<Function> && kStream) {
    stream_result(part, value, to);
  } else if constexpr (TiesAreRare<Function>) {
    store_result(part, value, to);
  } else if constexpr (kStream) {
    part.stream(value, to);
  } else {
    part.store(value, to);
  }
}

// Sets y[i] = function(in[i] ...) for whole pairs from `begin`; returns where it stopped.
template <bool kStream, class T, class Function, class... In>
HWY_INLINE std::size_t map_pairs(const Function& function, std::size_t begin, std::size_t count, T* y,
                                 const In*... in) {
  const std::size_t step = pair_elems();
  std::size_t i = begin;
  for (; i + step <= count; i += step) {
    (prefetch_ahead(in + i, step * sizeof(In)), ...);
    if constexpr (!kStream) prefetch_ahead(y + i, step * sizeof(T));
    put_pair<Function, kStream>(WholePair<T>(), applied(function, load_pair(in + i)...), y + i);
  }
  return i;
}

// Sets y[i] = function(in[i] ...), where Function has HWY_INLINE VF32 operator()(VF32 ...) const. y may be one of `in`.
// `stream`: uses non-temporal stores.
template <class T, class Function, class... In>
void map_elems(const Function& function, bool stream, std::size_t count, T* y, const In*... in) {
  const auto part = [&](std::size_t begin, std::size_t elems) HWY_ATTR {
    if (elems == 0) return;
    put_pair<Function, false>(PartPair<T>{elems}, applied(function, load_pair_tail(in + begin, elems)...), y + begin);
  };
  std::size_t i = 0;
  if (stream) {
    i = elems_to_alignment(y, count);
    part(0, i);
    i = map_pairs<true>(function, i, count, y, in...);
    hwy::FlushStream();
  } else {
    i = map_pairs<false>(function, i, count, y, in...);
  }
  part(i, count - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
