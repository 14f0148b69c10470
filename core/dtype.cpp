#include "core/dtype.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "core/error.h"

namespace lockstep::core {
namespace {

// A small binary format: from the top, bits are sign, exponent and mantissa.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // otherwise the all-ones exponent holds numbers, and only the all-ones mantissa is NaN (E4M3)
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr std::uint32_t exponent_ones() const { return (1u << exponent_bits) - 1; }
  constexpr std::uint32_t mantissa_ones() const { return (1u << mantissa_bits) - 1; }
  constexpr int sign_shift() const { return exponent_bits + mantissa_bits; }
  constexpr std::uint32_t nan_bits() const {
    return (exponent_ones() << mantissa_bits) | (has_infinity ? 1u << (mantissa_bits - 1) : mantissa_ones());
  }
  // Smallest code above all finite numbers.
  constexpr std::uint32_t overflow_bits() const {
    return has_infinity ? exponent_ones() << mantissa_bits : (exponent_ones() << mantissa_bits) | mantissa_ones();
  }
};

constexpr Format kFloat16{5, 10, true};
constexpr Format kE4M3{4, 3, false};
constexpr Format kE5M2{5, 2, true};

float decode(const Format& f, std::uint32_t bits) {
  const bool negative = (bits >> f.sign_shift()) & 1u;
  const std::uint32_t exponent = (bits >> f.mantissa_bits) & f.exponent_ones();
  const std::uint32_t mantissa = bits & f.mantissa_ones();
  float magnitude = 0;
  if (f.has_infinity && exponent == f.exponent_ones()) {
    magnitude = mantissa != 0 ? std::nanf("") : INFINITY;
  } else if (!f.has_infinity && exponent == f.exponent_ones() && mantissa == f.mantissa_ones()) {
    magnitude = std::nanf("");
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), 1 - f.bias() - f.mantissa_bits);
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa | (1u << f.mantissa_bits)),
                           static_cast<int>(exponent) - f.bias() - f.mantissa_bits);
  }
  return negative ? -magnitude : magnitude;
}

// Returns value / 2^shift, rounded to nearest, ties to even; shift >= 0.
std::uint32_t round_shift(std::uint32_t value, int shift) {
  if (shift == 0) return value;
  if (shift > 31) return 0;
  const std::uint32_t half = 1u << (shift - 1);
  const std::uint32_t rest = value & ((half << 1) - 1);
  const std::uint32_t whole = shift == 32 ? 0 : value >> shift;
  const bool up = rest > half || (rest == half && (whole & 1u) != 0);
  return whole + (up ? 1u : 0u);
}

std::uint32_t encode(const Format& f, float x) {
  const std::uint32_t wide = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (wide >> 31) << f.sign_shift();
  if (std::isnan(x)) return sign | f.nan_bits();
  if (std::isinf(x)) return sign | f.overflow_bits();
  const int exponent = static_cast<int>((wide >> 23) & 0xffu) - 127;
  const std::uint32_t mantissa = (wide & 0x7fffffu) | (exponent == -127 ? 0u : 0x800000u);
  const int extra = 1 - f.bias() - exponent;  // bits lost below the smallest normal number
  const int shift = 23 - f.mantissa_bits + (extra > 0 ? extra : 0);
  std::uint32_t code = round_shift(mantissa, shift);
  // A carry out of the mantissa increments the exponent by itself, because the two fields are adjacent.
  if (extra <= 0) code += static_cast<std::uint32_t>(exponent + f.bias() - 1) << f.mantissa_bits;
  return sign | (code >= f.overflow_bits() ? f.overflow_bits() : code);
}

}  // namespace

float to_float(Float16 x) {
  return decode(kFloat16, x.bits);
}
float to_float(Float8E4M3 x) {
  return decode(kE4M3, x.bits);
}
float to_float(Float8E5M2 x) {
  return decode(kE5M2, x.bits);
}

Float16 to_float16(float x) {
  return {static_cast<std::uint16_t>(encode(kFloat16, x))};
}
Float8E4M3 to_float8_e4m3(float x) {
  return {static_cast<std::uint8_t>(encode(kE4M3, x))};
}
Float8E5M2 to_float8_e5m2(float x) {
  return {static_cast<std::uint8_t>(encode(kE5M2, x))};
}

namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;        // nccl-tests' name
  std::string_view short_name;  // the usual short name
  std::size_t size_bytes;
  bool floating;
  int significand_bits;
};

constexpr std::array kDTypes{
    DTypeRow{DType::i8, "int8", "i8", 1, false, 7},        DTypeRow{DType::u8, "uint8", "u8", 1, false, 8},
    DTypeRow{DType::i32, "int32", "i32", 4, false, 31},    DTypeRow{DType::u32, "uint32", "u32", 4, false, 32},
    DTypeRow{DType::i64, "int64", "i64", 8, false, 63},    DTypeRow{DType::u64, "uint64", "u64", 8, false, 64},
    DTypeRow{DType::f16, "half", "f16", 2, true, 11},      DTypeRow{DType::f32, "float", "f32", 4, true, 24},
    DTypeRow{DType::f64, "double", "f64", 8, true, 53},    DTypeRow{DType::bf16, "bfloat16", "bf16", 2, true, 8},
    DTypeRow{DType::f8e4m3, "f8e4m3", "e4m3", 1, true, 4}, DTypeRow{DType::f8e5m2, "f8e5m2", "e5m2", 1, true, 3},
};
constexpr std::array kDTypeOrder = [] {
  std::array<DType, kDTypes.size()> order{};
  std::transform(kDTypes.begin(), kDTypes.end(), order.begin(), [](const DTypeRow& row) { return row.dtype; });
  return order;
}();
constexpr std::array kOps{ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg};
constexpr std::array<std::string_view, 5> kOpNames{"sum", "prod", "max", "min", "avg"};

const DTypeRow& row(DType dtype) {
  return kDTypes.at(static_cast<std::size_t>(dtype));
}

}  // namespace

std::span<const DType> all_dtypes() {
  return kDTypeOrder;
}
std::span<const ReduceOp> all_reduce_ops() {
  return kOps;
}
std::size_t size_of(DType dtype) {
  return row(dtype).size_bytes;
}
std::string_view name_of(DType dtype) {
  return row(dtype).name;
}
std::string_view short_name_of(DType dtype) {
  return row(dtype).short_name;
}
std::string_view name_of(ReduceOp op) {
  return kOpNames.at(static_cast<std::size_t>(op));
}
bool is_floating(DType dtype) {
  return row(dtype).floating;
}
int significand_bits(DType dtype) {
  return row(dtype).significand_bits;
}

DType parse_dtype(std::string_view name) {
  std::string allowed;
  for (const DTypeRow& candidate : kDTypes) {
    if (name == candidate.name || name == candidate.short_name) return candidate.dtype;
    allowed += " " + std::string(candidate.name);
  }
  throw usage_error("unknown datatype '" + std::string(name) + "'; allowed:" + allowed + " all");
}

ReduceOp parse_reduce_op(std::string_view name) {
  for (ReduceOp op : kOps) {
    if (name == name_of(op)) return op;
  }
  throw usage_error("unknown operation '" + std::string(name) + "'; allowed: sum prod max min avg all");
}

double sum_tolerance(DType dtype, std::size_t terms) {
  if (!is_floating(dtype) || terms < 2) return 0;
  const double roundoff = std::ldexp(1.0, -significand_bits(dtype));
  const double product = static_cast<double>(terms - 1) * roundoff;
  return product < 0.5 ? product / (1 - product) : 1;
}

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
