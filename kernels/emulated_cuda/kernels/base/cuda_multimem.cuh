// In place of the header of this name, which has PTX: a multicast address stands for one place in each of several
// replicas.
#pragma once

#include "core/dtype.h"
#include "kernels/base/cuda_combine.cuh"
#include "kernels/base/cuda_elements.cuh"
#include "kernels/emulated_cuda/emulated_multicast.h"

namespace lockstep::kernels {

template <class T, core::ReduceOp kOp>
struct Multimem {
  static constexpr bool kWide = sizeof(T) >= 4 && std::is_arithmetic_v<T>;
  static constexpr bool kHalf = std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>;
  static constexpr bool kLimit = kOp == core::ReduceOp::min || kOp == core::ReduceOp::max;
  static constexpr bool kExists =
      kOp == core::ReduceOp::sum ? kWide || kHalf : kLimit && (kHalf || (kWide && std::is_integral_v<T>));
};

template <class T, core::ReduceOp kOp>
Pack<T, 16 / sizeof(T)> multimem_load(const T* at) {
  constexpr int kItems = 16 / sizeof(T);
  Wide<T> values[kItems] = {};
  bool first = true;
  for (const std::byte* replica : emulated::replicas_at(at)) {
    const auto pack = Pack<T, kItems>::load(reinterpret_cast<const T*>(replica));
    for (int i = 0; i < kItems; ++i) {
      const auto next = widened(pack.items[i]);
      values[i] = first ? next : combined<kOp>(values[i], next);
    }
    first = false;
  }
  Pack<T, kItems> made;
  for (int i = 0; i < kItems; ++i) made.items[i] = narrowed<T>(values[i]);
  return made;
}

template <class T>
void multimem_store(T* at, const Pack<T, 16 / sizeof(T)>& pack) {
  for (std::byte* replica : emulated::replicas_at(at)) pack.store(reinterpret_cast<T*>(replica));
}

inline void fence_between_aliases() {}

}  // namespace lockstep::kernels
