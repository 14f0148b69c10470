// Combines elements in CUDA kernels as kernels/reduce/reduction.h defines, for every dtype and operation.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "kernels/base/cuda_elements.cuh"

namespace lockstep::kernels {

// The type in which sums are computed.
template <class T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class T>
__device__ __forceinline__ Wide<T> widened(T x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return x;
  } else {
    return to_f32(x);
  }
}

template <class T>
__device__ __forceinline__ T narrowed(Wide<T> x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return x;
  } else {
    return from_f32<T>(x);
  }
}

// Integers wrap around, computed in their unsigned type.
template <core::ReduceOp kOp, class W>
__device__ __forceinline__ W combined(W a, W b) {
  if constexpr (kOp == core::ReduceOp::max) {
    return a < b ? b : a;
  } else if constexpr (kOp == core::ReduceOp::min) {
    return b < a ? b : a;
  } else if constexpr (std::is_integral_v<W>) {
    const auto x = static_cast<std::uint64_t>(a);
    const auto y = static_cast<std::uint64_t>(b);
    return static_cast<W>(kOp == core::ReduceOp::prod ? x * y : x + y);
  } else {
    return kOp == core::ReduceOp::prod ? a * b : a + b;
  }
}

template <class W>
__device__ __forceinline__ W averaged(W sum, std::int64_t over) {
  if constexpr (std::is_unsigned_v<W>) {
    return static_cast<W>(std::uint64_t{sum} / static_cast<std::uint64_t>(over));
  } else {
    return static_cast<W>(sum / static_cast<std::conditional_t<std::is_integral_v<W>, std::int64_t, W>>(over));
  }
}

// Calls visit(T{}).
template <class Visit>
void with_combined_type(core::DType dtype, Visit&& visit) {
  switch (dtype) {
    case core::DType::i8:
      return visit(std::int8_t{});
    case core::DType::u8:
      return visit(std::uint8_t{});
    case core::DType::i32:
      return visit(std::int32_t{});
    case core::DType::u32:
      return visit(std::uint32_t{});
    case core::DType::i64:
      return visit(std::int64_t{});
    case core::DType::u64:
      return visit(std::uint64_t{});
    case core::DType::f64:
      return visit(double{});
    case core::DType::f8e4m3:
      return visit(CudaE4M3{});
    case core::DType::f8e5m2:
      return visit(CudaE5M2{});
    default:
      return with_cuda_activation_type(dtype, visit);
  }
}

// Calls visit(std::integral_constant<ReduceOp, op>); an average is a sum that is divided at the end.
template <class Visit>
void with_op(core::ReduceOp op, Visit&& visit) {
  using core::ReduceOp;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return visit(std::integral_constant<ReduceOp, ReduceOp::sum>{});
    case ReduceOp::prod:
      return visit(std::integral_constant<ReduceOp, ReduceOp::prod>{});
    case ReduceOp::max:
      return visit(std::integral_constant<ReduceOp, ReduceOp::max>{});
    case ReduceOp::min:
      return visit(std::integral_constant<ReduceOp, ReduceOp::min>{});
  }
}

}  // namespace lockstep::kernels
