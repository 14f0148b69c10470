// Stores a function's results, for sources that use Highway: included once per target.
//
// Rounds to nearest. A tie between two BFloat16 goes to the larger magnitude (on the scalar target to the even one):
// one addition instead of the four operations of store_numbers in vector_io-inl.h. Meant for results that are ties only
// by chance, such as those of exp. NaN stays NaN if its lower 16 bits are 0, as in every NaN that BFloat16 operands or
// the processor produce.
#if defined(LOCKSTEP_KERNELS_BASE_VECTOR_RESULTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_BASE_VECTOR_RESULTS_INL_H_
#undef LOCKSTEP_KERNELS_BASE_VECTOR_RESULTS_INL_H_
#else
#define LOCKSTEP_KERNELS_BASE_VECTOR_RESULTS_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/base/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
