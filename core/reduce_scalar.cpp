#include "core/reduce_scalar.h"

#include <cstdint>
#include <type_traits>

#include "core/error.h"
#include "core/narrow_float.h"

namespace lockstep::core {
namespace {

// The type in which T is computed: float for the narrow floats, T itself for all others.
template <typename T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <typename T>
Wide<T> widened(T x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return x;
  } else {
    return to_float(x);
  }
}

template <typename T>
T narrowed(Wide<T> x) {
  if constexpr (std::is_same_v<T, Float16>) {
    return to_float16(x);
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return to_bfloat16(x);
  } else if constexpr (std::is_same_v<T, Float8E4M3>) {
    return to_float8_e4m3(x);
  } else if constexpr (std::is_same_v<T, Float8E5M2>) {
    return to_float8_e5m2(x);
  } else {
    return x;
  }
}

// Sums and products use the unsigned type, for which overflow is defined.
template <typename W, typename Operation>
W wrapping(W a, W b, Operation operation) {
  if constexpr (std::is_integral_v<W>) {
    using U = std::make_unsigned_t<W>;
    return static_cast<W>(static_cast<U>(operation(static_cast<U>(a), static_cast<U>(b))));
  } else {
    return operation(a, b);
  }
}

template <typename W>
W combine(ReduceOp op, W a, W b) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return wrapping(a, b, [](auto x, auto y) { return x + y; });
    case ReduceOp::prod:
      return wrapping(a, b, [](auto x, auto y) { return x * y; });
    case ReduceOp::max:
      return a < b ? b : a;
    case ReduceOp::min:
      return b < a ? b : a;
  }
  LOCKSTEP_CHECK(false, "operation out of range");
  return a;
}

template <typename W>
W divided(W sum, int num_ranks) {
  if constexpr (std::is_floating_point_v<W>) {
    return sum / static_cast<W>(num_ranks);
  } else if constexpr (std::is_signed_v<W>) {
    return static_cast<W>(std::int64_t{sum} / num_ranks);
  } else {
    return static_cast<W>(std::uint64_t{sum} / static_cast<std::uint64_t>(num_ranks));
  }
}

// Calls f with a null pointer of the dtype's C++ type.
template <typename F>
void with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::i8:
      return f(static_cast<std::int8_t*>(nullptr));
    case DType::u8:
      return f(static_cast<std::uint8_t*>(nullptr));
    case DType::i32:
      return f(static_cast<std::int32_t*>(nullptr));
    case DType::u32:
      return f(static_cast<std::uint32_t*>(nullptr));
    case DType::i64:
      return f(static_cast<std::int64_t*>(nullptr));
    case DType::u64:
      return f(static_cast<std::uint64_t*>(nullptr));
    case DType::f16:
      return f(static_cast<Float16*>(nullptr));
    case DType::f32:
      return f(static_cast<float*>(nullptr));
    case DType::f64:
      return f(static_cast<double*>(nullptr));
    case DType::bf16:
      return f(static_cast<BFloat16*>(nullptr));
    case DType::f8e4m3:
      return f(static_cast<Float8E4M3*>(nullptr));
    case DType::f8e5m2:
      return f(static_cast<Float8E5M2*>(nullptr));
  }
  LOCKSTEP_CHECK(false, "dtype out of range");
}

}  // namespace

void reduce_scalar(DType dtype, ReduceOp op, void* destination, const void* a, const void* b, std::size_t count) {
  with_type(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    for (std::size_t i = 0; i < count; ++i) {
      const auto left = widened(static_cast<const T*>(a)[i]);
      const auto right = widened(static_cast<const T*>(b)[i]);
      static_cast<T*>(destination)[i] = narrowed<T>(combine(op, left, right));
    }
  });
}

void finish_average(DType dtype, void* data, std::size_t count, int num_ranks) {
  with_type(dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    T* const elements = static_cast<T*>(data);
    for (std::size_t i = 0; i < count; ++i) elements[i] = narrowed<T>(divided(widened(elements[i]), num_ranks));
  });
}

}  // namespace lockstep::core
