// Functions that instructions compute from the values of a lane (PTX ISA 9.0, sections 9.7.1 to 9.7.8): integers wrap,
// reals are rounded once.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace lockstep::ptx {

// Integer results wrap; C++ computes them without signs.
template <class T, class F>
T wrapped(T a, T b, F compute) {
  if constexpr (std::is_floating_point_v<T>) {
    return compute(a, b);
  } else {
    using Wide = std::uint64_t;
    return static_cast<T>(compute(static_cast<Wide>(a), static_cast<Wide>(b)));
  }
}
struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return wrapped(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Subtract {
  template <class T>
  T operator()(T a, T b) const {
    return wrapped(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct Multiply {
  template <class T>
  T operator()(T a, T b) const {
    return wrapped(a, b, [](auto x, auto y) { return x * y; });
  }
};
struct MultiplyAdd {
  template <class T>
  T operator()(T a, T b, T c) const {
    return Add{}(Multiply{}(a, b), c);
  }
};
template <class T>
struct HighProduct {
  T operator()(T a, T b) const {
    if constexpr (sizeof(T) == 8) {
      using Wide = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
      return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> 64);
    } else {
      using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
      return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (8 * sizeof(T)));
    }
  }
};
template <class Wide>
struct WideProduct {
  template <class T>
  Wide operator()(T a, T b) const {
    return static_cast<Wide>(static_cast<Wide>(a) * static_cast<Wide>(b));
  }
};
template <class Wide>
struct WideMultiplyAdd {
  template <class T>
  Wide operator()(T a, T b, Wide c) const {
    return Add{}(static_cast<Wide>(static_cast<Wide>(a) * static_cast<Wide>(b)), c);
  }
};
// Division by zero gives all ones, as hardware does ("machine-specific value" in the ISA).
struct Divide {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return a / b;
    } else {
      if (b == 0) return static_cast<T>(~T{0});
      if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Subtract{}(T{0}, a);
      return static_cast<T>(a / b);
    }
  }
};
struct Remainder {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Negate {
  template <class T>
  T operator()(T a) const {
    if constexpr (std::is_floating_point_v<T>) {
      return -a;
    } else {
      return Subtract{}(T{0}, a);
    }
  }
};
struct Absolute {
  template <class T>
  T operator()(T a) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fabs(a);
    } else {
      return a < 0 ? Subtract{}(T{0}, a) : a;
    }
  }
};
// A number wins over NaN; -0 is below +0.
struct Minimum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (a == 0 && b == 0) return std::signbit(a) ? a : b;
      return std::fmin(a, b);
    } else {
      return std::min(a, b);
    }
  }
};
struct Maximum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (a == 0 && b == 0) return std::signbit(a) ? b : a;
      return std::fmax(a, b);
    } else {
      return std::max(a, b);
    }
  }
};
struct FusedMultiplyAdd {
  template <class T>
  T operator()(T a, T b, T c) const {
    return std::fma(a, b, c);
  }
};
struct FusedRoundedDown {
  float operator()(float a, float b, float c) const {
    // The product has 48 bits; the sum with c in f64 is rounded once more only if exponents are far apart, in which
    // case the direction is found from the exact difference.
    const double product = static_cast<double>(a) * static_cast<double>(b);
    const double sum = product + static_cast<double>(c);
    auto rounded = static_cast<float>(sum);
    if (static_cast<double>(rounded) > sum) rounded = std::nextafterf(rounded, -std::numeric_limits<float>::infinity());
    return rounded;
  }
};
struct SquareRoot {
  template <class T>
  T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct Reciprocal {
  template <class T>
  T operator()(T a) const {
    return 1 / a;
  }
};
inline float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0F, x) : x;
}
struct PowerOfTwoFlushed {
  float operator()(float a) const { return flushed(std::exp2(flushed(a))); }
};
struct LogOfTwoFlushed {
  float operator()(float a) const { return std::log2(flushed(a)); }
};
struct ReciprocalFlushed {
  float operator()(float a) const { return flushed(1 / flushed(a)); }
};
struct ReciprocalRootFlushed {
  float operator()(float a) const { return 1 / std::sqrt(flushed(a)); }
};
struct CopySign {  // the first operand's sign
  template <class T>
  T operator()(T sign, T magnitude) const {
    return std::copysign(magnitude, sign);
  }
};
struct And {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  T operator()(T a) const {
    if constexpr (std::is_same_v<T, bool>) {
      return !a;
    } else {
      return static_cast<T>(~a);
    }
  }
};
// Shifts by more than the width give 0, or the sign.
struct ShiftLeft {
  template <class T>
  T operator()(T a, std::uint32_t by) const {
    return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(static_cast<std::uint64_t>(a) << by);
  }
};
struct ShiftRight {
  template <class T>
  T operator()(T a, std::uint32_t by) const {
    const std::uint32_t most = 8 * sizeof(T);
    if (by >= most) return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
    return static_cast<T>(a >> by);
  }
};
struct CountBits {
  template <class T>
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::popcount(a));
  }
};
struct LeadingZeros {
  template <class T>
  std::uint32_t operator()(T a) const {
    return static_cast<std::uint32_t>(std::countl_zero(a));
  }
};
struct ReverseBits {
  std::uint32_t operator()(std::uint32_t a) const {
    std::uint32_t result = 0;
    for (int bit = 0; bit < 32; ++bit) result |= (a >> bit & 1U) << (31 - bit);
    return result;
  }
};
struct InsertBits {  // a's low bits into b
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t at, std::uint32_t count) const {
    at &= 0xffU;
    count &= 0xffU;
    for (std::uint32_t i = 0; i < count && at + i < 32; ++i) {
      b = (b & ~(1U << (at + i))) | ((i < 32 ? a >> i & 1U : 0U) << (at + i));
    }
    return b;
  }
};
template <class T>
struct ExtractBits {
  T operator()(T a, std::uint32_t at, std::uint32_t count) const {
    constexpr std::uint32_t kBits = 8 * sizeof(T);
    at &= 0xffU;
    count &= 0xffU;
    using U = std::make_unsigned_t<T>;
    U result = 0;
    const std::uint32_t top = std::min(at + (count == 0 ? 0 : count - 1), kBits - 1);
    const bool fill = std::is_signed_v<T> && count != 0 && (static_cast<U>(a) >> top & 1U) != 0;
    for (std::uint32_t i = 0; i < kBits; ++i) {
      const bool bit = i < count && at + i < kBits ? (static_cast<U>(a) >> (at + i) & 1U) != 0 : fill;
      result |= static_cast<U>(bit) << i;
    }
    return static_cast<T>(result);
  }
};
struct Permute {  // prmt.b32 in its default mode
  std::uint32_t operator()(std::uint32_t a, std::uint32_t b, std::uint32_t select) const {
    const std::uint64_t bytes = a | static_cast<std::uint64_t>(b) << 32;
    std::uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t which = select >> (4 * i) & 0xfU;
      auto byte = static_cast<std::uint32_t>(bytes >> (8 * (which & 7U))) & 0xffU;
      if ((which & 8U) != 0) byte = (byte & 0x80U) != 0 ? 0xffU : 0;
      result |= byte << (8 * i);
    }
    return result;
  }
};
struct FunnelLeft {
  std::uint32_t operator()(std::uint32_t low, std::uint32_t high, std::uint32_t by) const {
    const std::uint64_t both = low | static_cast<std::uint64_t>(high) << 32;
    return static_cast<std::uint32_t>(both << (by & 31U) >> 32);
  }
};
struct FunnelRight {
  std::uint32_t operator()(std::uint32_t low, std::uint32_t high, std::uint32_t by) const {
    const std::uint64_t both = low | static_cast<std::uint64_t>(high) << 32;
    return static_cast<std::uint32_t>(both >> (by & 31U));
  }
};

}  // namespace lockstep::ptx
