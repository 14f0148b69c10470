// Integer, floating point, comparison, logic, data movement within registers and conversion (PTX ISA 9.0,
// sections 9.7.1 to 9.7.9): the same computation in each lane.
#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

#include "core/dtype.h"
#include "core/error.h"
#include "testing/ptx/machine.h"
#include "testing/ptx/program.h"

namespace lockstep::ptx {
namespace {

using Handler = bool (*)(Warp&, const Op&, std::uint32_t);

// A register of one lane as a C++ type; bool is a predicate.
template <class T>
T read(Warp& warp, Slot slot, int lane) {
  if constexpr (std::is_same_v<T, bool>) {
    return (warp.predicate(slot) >> lane & 1U) != 0;
  } else if constexpr (sizeof(T) == 8) {
    return std::bit_cast<T>(warp.words64(slot)[lane]);
  } else if constexpr (sizeof(T) == 4) {
    return std::bit_cast<T>(warp.words32(slot)[lane]);
  } else if constexpr (sizeof(T) == 2) {
    return std::bit_cast<T>(static_cast<std::uint16_t>(warp.words32(slot)[lane]));
  } else {
    return std::bit_cast<T>(static_cast<std::uint8_t>(warp.words32(slot)[lane]));
  }
}
template <class T>
void write(Warp& warp, Slot slot, int lane, T value) {
  if constexpr (std::is_same_v<T, bool>) {
    warp.set_bits(slot, lane, value ? 1 : 0);
  } else if constexpr (sizeof(T) == 8) {
    warp.words64(slot)[lane] = std::bit_cast<std::uint64_t>(value);
  } else if constexpr (sizeof(T) == 4) {
    warp.words32(slot)[lane] = std::bit_cast<std::uint32_t>(value);
  } else if constexpr (sizeof(T) == 2) {
    warp.words32(slot)[lane] = std::bit_cast<std::uint16_t>(value);
  } else {
    warp.words32(slot)[lane] = std::bit_cast<std::uint8_t>(value);
  }
}

void spread_poison(Warp& warp, const Op& op, std::uint32_t lanes) {
  std::uint32_t poison = 0;
  for (const Slot& from : op.from) poison |= warp.poison(from);
  for (const Slot& to : op.to) {
    warp.poison(to) = (warp.poison(to) & ~lanes) | (poison & lanes);
    warp.wrote(to);
  }
}

template <class F, class R, class... As, std::size_t... I>
void each_lane(Warp& warp, const Op& op, std::uint32_t lanes, std::index_sequence<I...>) {
  if (lanes == kAllLanes) {
    for (int lane = 0; lane < kLanes; ++lane) write<R>(warp, op.to[0], lane, F{}(read<As>(warp, op.from[I], lane)...));
  } else {
    for_lanes(lanes, [&](int lane) { write<R>(warp, op.to[0], lane, F{}(read<As>(warp, op.from[I], lane)...)); });
  }
}

// Computes to[0] = F(from[0], ...) in each lane.
template <class F, class R, class... As>
bool apply(Warp& warp, const Op& op, std::uint32_t lanes) {
  each_lane<F, R, As...>(warp, op, lanes, std::index_sequence_for<As...>{});
  spread_poison(warp, op, lanes);
  return true;
}

// The handler for the operation's type, for a computation on values of one type that gives the same type.
template <class F, class T, int kOperands>
Handler same_type() {
  if constexpr (kOperands == 1) return apply<F, T, T>;
  if constexpr (kOperands == 2) return apply<F, T, T, T>;
  if constexpr (kOperands == 3) return apply<F, T, T, T, T>;
}
template <class F, int kOperands>
Handler on_integers(Type type) {
  switch (type) {
    case Type::u16:
      return same_type<F, std::uint16_t, kOperands>();
    case Type::s16:
      return same_type<F, std::int16_t, kOperands>();
    case Type::u32:
      return same_type<F, std::uint32_t, kOperands>();
    case Type::s32:
      return same_type<F, std::int32_t, kOperands>();
    case Type::u64:
      return same_type<F, std::uint64_t, kOperands>();
    case Type::s64:
      return same_type<F, std::int64_t, kOperands>();
    default:
      return nullptr;
  }
}
template <class F, int kOperands>
Handler on_reals(Type type) {
  if (type == Type::f32) return same_type<F, float, kOperands>();
  if (type == Type::f64) return same_type<F, double, kOperands>();
  return nullptr;
}
template <class F, int kOperands>
Handler on_numbers(Type type) {
  const Handler integer = on_integers<F, kOperands>(type);
  return integer != nullptr ? integer : on_reals<F, kOperands>(type);
}
template <class F, int kOperands>
Handler on_bits(Type type) {
  switch (type) {
    case Type::pred:
      return same_type<F, bool, kOperands>();
    case Type::b16:
      return same_type<F, std::uint16_t, kOperands>();
    case Type::b32:
      return same_type<F, std::uint32_t, kOperands>();
    case Type::b64:
      return same_type<F, std::uint64_t, kOperands>();
    default:
      return nullptr;
  }
}

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
float flushed(float x) {
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
bool lookup(Warp& warp, const Op& op, std::uint32_t lanes) {  // lop3: op.number is the table
  for_lanes(lanes, [&](int lane) {
    const auto a = read<std::uint32_t>(warp, op.from[0], lane);
    const auto b = read<std::uint32_t>(warp, op.from[1], lane);
    const auto c = read<std::uint32_t>(warp, op.from[2], lane);
    std::uint32_t result = 0;
    for (int row = 0; row < 8; ++row) {
      if ((op.number >> row & 1) == 0) continue;
      result |= ((row & 4) != 0 ? a : ~a) & ((row & 2) != 0 ? b : ~b) & ((row & 1) != 0 ? c : ~c);
    }
    write(warp, op.to[0], lane, result);
  });
  spread_poison(warp, op, lanes);
  return true;
}

// Comparisons. Ordered ones are false for NaN; those that end in "u" are true.
enum Compare { kEq, kNe, kLt, kLe, kGt, kGe, kEqu, kNeu, kLtu, kLeu, kGtu, kGeu, kNum, kNan };
constexpr std::string_view kCompares[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                          "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
template <int kCompare>
struct Comparison {
  template <class T>
  bool operator()(T a, T b) const {
    bool unordered = false;
    if constexpr (std::is_floating_point_v<T>) unordered = std::isnan(a) || std::isnan(b);
    if constexpr (kCompare == kNum) return !unordered;
    if constexpr (kCompare == kNan) return unordered;
    if (unordered) return kCompare >= kEqu;
    switch (kCompare < kEqu ? kCompare : kCompare - kEqu) {
      case kEq:
        return a == b;
      case kNe:
        return a != b;
      case kLt:
        return a < b;
      case kLe:
        return a <= b;
      case kGt:
        return a > b;
      default:
        return a >= b;
    }
  }
};
template <int kCompare>
Handler comparison(Type type) {
  using C = Comparison<kCompare>;
  switch (type) {
    case Type::b16:
    case Type::u16:
      return apply<C, bool, std::uint16_t, std::uint16_t>;
    case Type::s16:
      return apply<C, bool, std::int16_t, std::int16_t>;
    case Type::b32:
    case Type::u32:
      return apply<C, bool, std::uint32_t, std::uint32_t>;
    case Type::s32:
      return apply<C, bool, std::int32_t, std::int32_t>;
    case Type::b64:
    case Type::u64:
      return apply<C, bool, std::uint64_t, std::uint64_t>;
    case Type::s64:
      return apply<C, bool, std::int64_t, std::int64_t>;
    case Type::f32:
      return apply<C, bool, float, float>;
    case Type::f64:
      return apply<C, bool, double, double>;
    default:
      return nullptr;
  }
}
template <int... kCompares>
Handler comparison_of(int compare, Type type, std::integer_sequence<int, kCompares...>) {
  Handler found = nullptr;
  ((compare == kCompares ? (found = comparison<kCompares>(type), true) : false) || ...);
  return found;
}

// setp.CMP.BOOL p|q, a, b, c: after the comparison, combined with a predicate.
bool combine_comparison(Warp& warp, const Op& op, std::uint32_t lanes) {
  Op plain = op;
  plain.from.resize(2);
  plain.to.resize(1);
  comparison_of(op.detail & 0xff, op.type, std::make_integer_sequence<int, 14>{})(warp, plain, lanes);
  const std::uint32_t result = warp.predicate(op.to[0]);
  const std::uint32_t raw = (op.negated >> 2 & 1U) != 0 ? ~warp.predicate(op.from[2]) : warp.predicate(op.from[2]);
  const auto combined = [&](std::uint32_t a) {
    return op.detail >> 8 == 0 ? a & raw : op.detail >> 8 == 1 ? a | raw : a ^ raw;
  };
  warp.predicate(op.to[0]) = (result & ~lanes) | (combined(result) & lanes);
  warp.poison(op.to[0]) |= warp.poison(op.from[2]) & lanes;
  if (op.to.size() > 1) {
    warp.predicate(op.to[1]) = (warp.predicate(op.to[1]) & ~lanes) | (combined(~result) & lanes);
    warp.poison(op.to[1]) = warp.poison(op.to[0]);
  }
  return true;
}

template <class T>
struct Select {
  T operator()(T a, T b, bool which) const { return which ? a : b; }
};
// Nothing depends on the value that is not selected: compilers load it before they know.
template <class T>
bool select(Warp& warp, const Op& op, std::uint32_t lanes) {
  each_lane<Select<T>, T, T, T, bool>(warp, op, lanes, std::make_index_sequence<3>{});
  const std::uint32_t which = warp.predicate(op.from[2]);
  const std::uint32_t poison =
      (warp.poison(op.from[0]) & which) | (warp.poison(op.from[1]) & ~which) | warp.poison(op.from[2]);
  warp.poison(op.to[0]) = (warp.poison(op.to[0]) & ~lanes) | (poison & lanes);
  warp.wrote(op.to[0]);
  return true;
}

// A predicate that decides "and" or "or" alone needs no other.
template <bool kAnd>
bool decide(Warp& warp, const Op& op, std::uint32_t lanes) {
  const std::uint32_t a = warp.predicate(op.from[0]);
  const std::uint32_t b = warp.predicate(op.from[1]);
  const std::uint32_t a_poison = warp.poison(op.from[0]);
  const std::uint32_t b_poison = warp.poison(op.from[1]);
  const std::uint32_t a_open = kAnd ? a : ~a;  // where b decides
  const std::uint32_t b_open = kAnd ? b : ~b;
  const std::uint32_t poison = (a_poison & b_poison) | (a_poison & b_open) | (b_poison & a_open);
  warp.predicate(op.to[0]) = (warp.predicate(op.to[0]) & ~lanes) | ((kAnd ? a & b : a | b) & lanes);
  warp.poison(op.to[0]) = (warp.poison(op.to[0]) & ~lanes) | (poison & lanes);
  warp.wrote(op.to[0]);
  return true;
}

struct Copy {
  template <class T>
  T operator()(T a) const {
    return a;
  }
};

bool move(Warp& warp, const Op& op, std::uint32_t lanes) {
  if (op.detail == 1) {  // %globaltimer, %clock64
    const std::uint64_t now = warp.machine().nanoseconds();
    for_lanes(lanes, [&](int lane) { warp.set_bits(op.to[0], lane, now); });
    warp.poison(op.to[0]) &= ~lanes;
    warp.wrote(op.to[0]);
    return true;
  }
  for_lanes(lanes, [&](int lane) { warp.set_bits(op.to[0], lane, warp.bits(op.from[0], lane)); });
  spread_poison(warp, op, lanes);
  return true;
}

// mov.b32 {lo, hi}, x and mov.b32 x, {lo, hi}.
bool unpack(Warp& warp, const Op& op, std::uint32_t lanes) {
  const auto bits = static_cast<int>(8 * op.number);
  for_lanes(lanes, [&](int lane) {
    const std::uint64_t value = warp.bits(op.from[0], lane);
    for (std::size_t i = 0; i < op.to.size(); ++i) {
      const std::uint64_t mask = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
      warp.set_bits(op.to[i], lane, value >> (bits * static_cast<int>(i)) & mask);
    }
  });
  spread_poison(warp, op, lanes);
  return true;
}
bool pack(Warp& warp, const Op& op, std::uint32_t lanes) {
  const auto bits = static_cast<int>(8 * op.number);
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  for_lanes(lanes, [&](int lane) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < op.from.size(); ++i) {
      value |= (warp.bits(op.from[i], lane) & mask) << (bits * static_cast<int>(i));
    }
    warp.set_bits(op.to[0], lane, value);
  });
  spread_poison(warp, op, lanes);
  return true;
}

// Conversions between any two types: through an integer of 64 bits or an f64, both of which hold every narrower value.
enum class Rounding : std::uint8_t { none, nearest, zero, down, up };
struct Conversion {
  Rounding rounding = Rounding::none;
  bool to_integer_value = false;  // .rni and so on: a whole number
  bool saturate = false;
  bool relu = false;
};
Conversion conversion_of(int detail) {
  return {static_cast<Rounding>(detail & 7), (detail & 8) != 0, (detail & 16) != 0, (detail & 32) != 0};
}
int detail_of(const Conversion& c) {
  return static_cast<int>(c.rounding) | (c.to_integer_value ? 8 : 0) | (c.saturate ? 16 : 0) | (c.relu ? 32 : 0);
}

bool is_real(Type type) {
  return type == Type::f16 || type == Type::bf16 || type == Type::f32 || type == Type::f64;
}
double real_of(std::uint64_t bits, Type type) {
  switch (type) {
    case Type::f16:
      return core::to_float(core::Float16{static_cast<std::uint16_t>(bits)});
    case Type::bf16:
      return core::to_float(core::BFloat16{static_cast<std::uint16_t>(bits)});
    case Type::f32:
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    default:
      return std::bit_cast<double>(bits);
  }
}
std::int64_t integer_of(std::uint64_t bits, Type type) {
  const int shift = 64 - 8 * bytes_of(type);
  return is_signed(type) ? static_cast<std::int64_t>(bits << shift) >> shift
                         : static_cast<std::int64_t>(bits << shift >> shift);
}
double whole(double x, Rounding rounding) {
  switch (rounding) {
    case Rounding::zero:
      return std::trunc(x);
    case Rounding::down:
      return std::floor(x);
    case Rounding::up:
      return std::ceil(x);
    default:
      return std::nearbyint(x);
  }
}
float narrowed(double x, Rounding rounding) {
  auto nearest = static_cast<float>(x);
  const auto exact = static_cast<double>(nearest);
  if (rounding == Rounding::zero && std::fabs(exact) > std::fabs(x)) nearest = std::nextafterf(nearest, 0);
  if (rounding == Rounding::down && exact > x) nearest = std::nextafterf(nearest, -INFINITY);
  if (rounding == Rounding::up && exact < x) nearest = std::nextafterf(nearest, INFINITY);
  return nearest;
}
std::uint64_t bits_of_real(double x, Type type, const Conversion& how) {
  if (how.saturate && is_real(type)) x = std::isnan(x) ? 0 : std::clamp(x, 0.0, 1.0);
  if (how.relu) x = std::isnan(x) ? x : std::max(x, 0.0);
  switch (type) {
    case Type::f16:
      return core::to_float16(static_cast<float>(x)).bits;
    case Type::bf16: {
      const auto bits = core::to_bfloat16(static_cast<float>(x)).bits;
      return std::isnan(x) ? 0x7fffU : bits;  // the ISA's canonical NaN
    }
    case Type::f32:
      return std::bit_cast<std::uint32_t>(narrowed(x, how.rounding));
    default:
      return std::bit_cast<std::uint64_t>(x);
  }
}
// From a real: clamped to the range, NaN is 0. From an integer: clamped with .sat, else cut.
std::uint64_t bits_of_integer(double x, Type type) {
  if (std::isnan(x)) return 0;
  const int bits = 8 * bytes_of(type);
  if (is_signed(type)) {
    const double most = std::ldexp(1.0, bits - 1);
    if (x >= most)
      return static_cast<std::uint64_t>((std::int64_t{1} << (bits - 2)) - 1 + (std::int64_t{1} << (bits - 2)));
    if (x <= -most) return static_cast<std::uint64_t>(-1) << (bits - 1);
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(x));
  }
  if (x <= 0) return 0;
  if (x >= std::ldexp(1.0, bits)) return ~std::uint64_t{0};
  return static_cast<std::uint64_t>(x);
}
std::uint64_t clamped(std::int64_t value, Type from, Type to) {
  const int bits = 8 * bytes_of(to);
  const bool is_large = !is_signed(from) && value < 0;  // an u64 above 2^63
  const double as_real = is_large ? static_cast<double>(static_cast<std::uint64_t>(value)) : static_cast<double>(value);
  const double least = is_signed(to) ? -std::ldexp(1.0, bits - 1) : 0;
  const double most = std::ldexp(1.0, is_signed(to) ? bits - 1 : bits);
  if (as_real < least || as_real >= most) return bits_of_integer(as_real, to);
  return static_cast<std::uint64_t>(value);
}

std::uint64_t converted(std::uint64_t bits, Type from, Type to, const Conversion& how) {
  if (is_real(from)) {
    const double x = real_of(bits, from);
    if (!is_real(to)) return bits_of_integer(whole(x, how.rounding), to);
    return bits_of_real(how.to_integer_value ? whole(x, how.rounding) : x, to, how);
  }
  const std::int64_t value = integer_of(bits, from);
  if (!is_real(to)) return how.saturate ? clamped(value, from, to) : static_cast<std::uint64_t>(value);
  if (to == Type::f32) {  // one rounding
    return std::bit_cast<std::uint32_t>(is_signed(from) ? static_cast<float>(value)
                                                        : static_cast<float>(static_cast<std::uint64_t>(value)));
  }
  const double x =
      is_signed(from) ? static_cast<double>(value) : static_cast<double>(static_cast<std::uint64_t>(value));
  return bits_of_real(x, to, how);
}

// A register holds its type's bits; narrower results of signed types are extended to the register.
std::uint64_t in_register(std::uint64_t bits, Type type, int register_bytes) {
  const int width = 8 * bytes_of(type);
  if (width == 64) return bits;
  const std::uint64_t mask = (std::uint64_t{1} << width) - 1;
  bits &= mask;
  if (is_signed(type) && (bits >> (width - 1) & 1U) != 0) bits |= ~mask;
  return register_bytes == 8 ? bits : bits & 0xffffffffU;
}

bool convert(Warp& warp, const Op& op, std::uint32_t lanes) {
  const Conversion how = conversion_of(op.detail);
  for_lanes(lanes, [&](int lane) {
    const std::uint64_t bits = converted(warp.bits(op.from[0], lane), op.from_type, op.type, how);
    warp.set_bits(op.to[0], lane, in_register(bits, op.type, op.to[0].bytes));
  });
  spread_poison(warp, op, lanes);
  return true;
}
struct FromBFloat16 {
  float operator()(std::uint16_t a) const { return core::to_float(core::BFloat16{a}); }
};
struct FromFloat16 {
  float operator()(std::uint16_t a) const { return core::to_float(core::Float16{a}); }
};
template <class To>
struct Widen {
  template <class From>
  To operator()(From a) const {
    return static_cast<To>(a);
  }
};

// cvt.rn.f16x2.f32 d, a, b: a in the upper half.
enum class Pair : std::uint8_t { f16, bf16, e4m3, e5m2, f16_of_e4m3, f16_of_e5m2 };
float clamp_to_finite(float x, float most) {
  return std::isnan(x) ? x : std::clamp(x, -most, most);
}
template <Pair kPair>
bool convert_pair(Warp& warp, const Op& op, std::uint32_t lanes) {
  for_lanes(lanes, [&](int lane) {
    std::uint32_t bits = 0;
    if constexpr (kPair == Pair::f16_of_e4m3 || kPair == Pair::f16_of_e5m2) {
      const auto from = read<std::uint16_t>(warp, op.from[0], lane);
      for (int half = 0; half < 2; ++half) {
        const auto byte = static_cast<std::uint8_t>(from >> (8 * half));
        const float value =
            kPair == Pair::f16_of_e4m3 ? to_float(core::Float8E4M3{byte}) : to_float(core::Float8E5M2{byte});
        bits |= static_cast<std::uint32_t>(core::to_float16(value).bits) << (16 * half);
      }
    } else {
      const float high = read<float>(warp, op.from[0], lane);
      const float low = read<float>(warp, op.from[1], lane);
      const auto one = [](float x) -> std::uint32_t {
        if constexpr (kPair == Pair::f16) return core::to_float16(x).bits;
        if constexpr (kPair == Pair::bf16) return std::isnan(x) ? 0x7fffU : core::to_bfloat16(x).bits;
        if constexpr (kPair == Pair::e4m3)
          return std::isnan(x) ? 0x7fU : core::to_float8_e4m3(clamp_to_finite(x, 448)).bits;
        if constexpr (kPair == Pair::e5m2) {
          return std::isnan(x) ? 0x7fU : core::to_float8_e5m2(clamp_to_finite(x, 57344)).bits;
        }
      };
      bits = one(low) | one(high) << (kPair == Pair::e4m3 || kPair == Pair::e5m2 ? 8 : 16);
    }
    write(warp, op.to[0], lane, bits);
  });
  spread_poison(warp, op, lanes);
  return true;
}

Handler conversion_handler(const std::vector<std::string>& parts, Op& op) {
  const std::string& to = parts[parts.size() - 2];
  const std::string& from = parts.back();
  if (to == "f16x2" && from == "f32") return convert_pair<Pair::f16>;
  if (to == "bf16x2" && from == "f32") return convert_pair<Pair::bf16>;
  if (to == "e4m3x2") return convert_pair<Pair::e4m3>;
  if (to == "e5m2x2") return convert_pair<Pair::e5m2>;
  if (from == "e4m3x2") return convert_pair<Pair::f16_of_e4m3>;
  if (from == "e5m2x2") return convert_pair<Pair::f16_of_e5m2>;
  op.type = type_named(to);
  op.from_type = type_named(from);
  if (op.type == Type::none || op.from_type == Type::none) return nullptr;
  Conversion how;
  for (std::size_t i = 1; i + 2 < parts.size(); ++i) {
    const std::string& part = parts[i];
    if (part == "sat" || part == "satfinite") {
      how.saturate = true;
    } else if (part == "relu") {
      how.relu = true;
    } else if (part.size() >= 2 && part[0] == 'r') {
      how.to_integer_value = part.size() == 3 && part[2] == 'i';
      how.rounding = part[1] == 'n'   ? Rounding::nearest
                     : part[1] == 'z' ? Rounding::zero
                     : part[1] == 'm' ? Rounding::down
                                      : Rounding::up;
    } else if (part != "ftz") {
      return nullptr;
    }
  }
  op.detail = detail_of(how);
  if (op.type == Type::f32 && op.from_type == Type::bf16) return apply<FromBFloat16, float, std::uint16_t>;
  if (op.type == Type::f32 && op.from_type == Type::f16) return apply<FromFloat16, float, std::uint16_t>;
  if (op.detail == 0 && op.type == Type::s64 && op.from_type == Type::s32) {
    return apply<Widen<std::int64_t>, std::int64_t, std::int32_t>;
  }
  if (op.detail == 0 && op.type == Type::u64 && op.from_type == Type::u32) {
    return apply<Widen<std::uint64_t>, std::uint64_t, std::uint32_t>;
  }
  if (op.type == Type::u32 && op.from_type == Type::u64)
    return apply<Widen<std::uint32_t>, std::uint32_t, std::uint64_t>;
  return convert;
}

Handler multiply_handler(const std::vector<std::string>& parts, Type type) {
  if (parts[1] == "wide") {
    switch (type) {
      case Type::u16:
        return apply<WideProduct<std::uint32_t>, std::uint32_t, std::uint16_t, std::uint16_t>;
      case Type::s16:
        return apply<WideProduct<std::int32_t>, std::int32_t, std::int16_t, std::int16_t>;
      case Type::u32:
        return apply<WideProduct<std::uint64_t>, std::uint64_t, std::uint32_t, std::uint32_t>;
      case Type::s32:
        return apply<WideProduct<std::int64_t>, std::int64_t, std::int32_t, std::int32_t>;
      default:
        return nullptr;
    }
  }
  if (parts[1] == "hi") {
    switch (type) {
      case Type::u32:
        return same_type<HighProduct<std::uint32_t>, std::uint32_t, 2>();
      case Type::s32:
        return same_type<HighProduct<std::int32_t>, std::int32_t, 2>();
      case Type::u64:
        return same_type<HighProduct<std::uint64_t>, std::uint64_t, 2>();
      case Type::s64:
        return same_type<HighProduct<std::int64_t>, std::int64_t, 2>();
      default:
        return nullptr;
    }
  }
  return on_numbers<Multiply, 2>(type);
}

Handler multiply_add_handler(const std::vector<std::string>& parts, Type type) {
  if (parts[1] == "wide") {
    if (type == Type::u32) {
      return apply<WideMultiplyAdd<std::uint64_t>, std::uint64_t, std::uint32_t, std::uint32_t, std::uint64_t>;
    }
    if (type == Type::s32) {
      return apply<WideMultiplyAdd<std::int64_t>, std::int64_t, std::int32_t, std::int32_t, std::int64_t>;
    }
    return nullptr;
  }
  return on_integers<MultiplyAdd, 3>(type);
}

template <class F>
Handler shift_handler(Type type) {
  switch (type) {
    case Type::b16:
    case Type::u16:
      return apply<F, std::uint16_t, std::uint16_t, std::uint32_t>;
    case Type::s16:
      return apply<F, std::int16_t, std::int16_t, std::uint32_t>;
    case Type::b32:
    case Type::u32:
      return apply<F, std::uint32_t, std::uint32_t, std::uint32_t>;
    case Type::s32:
      return apply<F, std::int32_t, std::int32_t, std::uint32_t>;
    case Type::b64:
    case Type::u64:
      return apply<F, std::uint64_t, std::uint64_t, std::uint32_t>;
    case Type::s64:
      return apply<F, std::int64_t, std::int64_t, std::uint32_t>;
    default:
      return nullptr;
  }
}

// The function of an instruction that computes one result from operands of its type; null if it is none of these.
Handler plain_handler(const std::vector<std::string>& parts, Type type) {
  const std::string& name = parts[0];
  const bool approximate = parts.size() > 1 && parts[1] == "approx";
  if (name == "add") return on_numbers<Add, 2>(type);
  if (name == "sub") return on_numbers<Subtract, 2>(type);
  if (name == "mul") return multiply_handler(parts, type);
  if (name == "mad") return type == Type::f32 ? on_reals<FusedMultiplyAdd, 3>(type) : multiply_add_handler(parts, type);
  if (name == "div") return on_numbers<Divide, 2>(type);
  if (name == "rem") return on_integers<Remainder, 2>(type);
  if (name == "neg") return on_numbers<Negate, 1>(type);
  if (name == "abs") return on_numbers<Absolute, 1>(type);
  if (name == "min") return on_numbers<Minimum, 2>(type);
  if (name == "max") return on_numbers<Maximum, 2>(type);
  if (name == "fma")
    return parts[1] == "rm" ? apply<FusedRoundedDown, float, float, float, float> : on_reals<FusedMultiplyAdd, 3>(type);
  if (name == "sqrt") return on_reals<SquareRoot, 1>(type);
  if (name == "rcp") return approximate ? apply<ReciprocalFlushed, float, float> : on_reals<Reciprocal, 1>(type);
  if (name == "rsqrt") return apply<ReciprocalRootFlushed, float, float>;
  if (name == "ex2") return apply<PowerOfTwoFlushed, float, float>;
  if (name == "lg2") return apply<LogOfTwoFlushed, float, float>;
  if (name == "copysign") return on_reals<CopySign, 2>(type);
  if (type == Type::pred && (name == "and" || name == "or")) return name == "and" ? decide<true> : decide<false>;
  if (name == "and") return on_bits<And, 2>(type);
  if (name == "or") return on_bits<Or, 2>(type);
  if (name == "xor") return on_bits<Xor, 2>(type);
  if (name == "not") return on_bits<Not, 1>(type);
  if (name == "popc") {
    return type == Type::b64 ? apply<CountBits, std::uint32_t, std::uint64_t>
                             : apply<CountBits, std::uint32_t, std::uint32_t>;
  }
  if (name == "clz") {
    return type == Type::b64 ? apply<LeadingZeros, std::uint32_t, std::uint64_t>
                             : apply<LeadingZeros, std::uint32_t, std::uint32_t>;
  }
  if (name == "brev") return apply<ReverseBits, std::uint32_t, std::uint32_t>;
  return nullptr;
}

Type operand_type(const std::string& name, std::size_t index, Type type) {
  const bool shift_amount = (name == "shl" || name == "shr") && index == 1;
  const bool bit_range = (name == "bfe" && index >= 1) || (name == "bfi" && index >= 2);
  return shift_amount || bit_range ? Type::u32 : type;
}

void take_operands(Program& program, Op& op, const std::string& name) {
  const auto& operands = op.text->operands;
  op.to = {program.slot_of(operands[0].reg)};
  for (std::size_t i = 1; i < operands.size(); ++i) {
    if (operands[i].negated) op.negated |= 1U << (i - 1);
    op.from.push_back(program.value_of(operands[i], operand_type(name, i - 1, op.type)));
  }
}

Work work_of(const std::string& name, Type type) {
  if (name == "ex2" || name == "lg2" || name == "rcp" || name == "rsqrt" || name == "sqrt") return Work::special;
  if (name == "cvt") return Work::convert;
  if (name == "mov") return Work::move;
  return type == Type::f32 || type == Type::f64 ? Work::real : Work::integer;
}

bool decode_move(Program& program, Op& op) {
  const auto& operands = op.text->operands;
  op.work = Work::move;
  if (operands[0].kind == Operand::Kind::vector) {
    for (const Operand& part : operands[0].parts) op.to.push_back(program.slot_of(part.reg));
    op.from = {program.value_of(operands[1], op.type)};
    op.number = bytes_of(op.type) / static_cast<int>(op.to.size());
    op.run = unpack;
  } else if (operands[1].kind == Operand::Kind::vector) {
    op.to = {program.slot_of(operands[0].reg)};
    for (const Operand& part : operands[1].parts) op.from.push_back(program.value_of(part, Type::b32));
    op.number = bytes_of(op.type) / static_cast<int>(op.from.size());
    op.run = pack;
  } else {
    op.to = {program.slot_of(operands[0].reg)};
    if (operands[1].symbol == "%globaltimer" || operands[1].symbol == "%clock64" || operands[1].symbol == "%clock") {
      op.detail = 1;
      op.run = move;
      return true;
    }
    op.from = {program.value_of(operands[1], op.type)};
    const bool same = op.to[0].bytes == op.from[0].bytes;
    op.run = !same                 ? move
             : op.to[0].bytes == 8 ? apply<Copy, std::uint64_t, std::uint64_t>
             : op.to[0].bytes == 0 ? apply<Copy, bool, bool>
                                   : apply<Copy, std::uint32_t, std::uint32_t>;
  }
  return true;
}

}  // namespace

bool decode_arithmetic(Program& program, Op& op) {
  const std::vector<std::string> parts = parts_of(op.text->opcode);
  const std::string& name = parts[0];
  op.type = type_named(parts.back());
  op.work = work_of(name, op.type);
  if (name == "mov") return decode_move(program, op);
  if (name == "cvt") {
    op.run = conversion_handler(parts, op);
    const Type from = op.from_type == Type::none ? Type::f32 : op.from_type;
    op.to = {program.slot_of(op.text->operands[0].reg)};
    for (std::size_t i = 1; i < op.text->operands.size(); ++i) {
      op.from.push_back(program.value_of(op.text->operands[i], from));
    }
    // Registers may be wider than the types (PTX ISA, "Operand Size Exceeding Instruction-Type Size").
    const auto is_wider = [](Slot slot, Type type) { return slot.bytes > std::max(4, bytes_of(type)); };
    if (op.from_type != Type::none && (is_wider(op.from[0], op.from_type) || is_wider(op.to[0], op.type)))
      op.run = convert;
    return op.run != nullptr;
  }
  if (name == "setp") {
    const auto* found = std::find(std::begin(kCompares), std::end(kCompares), parts[1]);
    if (found == std::end(kCompares)) return false;
    op.detail = static_cast<int>(found - std::begin(kCompares));
    const bool combines = parts.size() > 3 && (parts[2] == "and" || parts[2] == "or" || parts[2] == "xor");
    const auto& operands = op.text->operands;
    std::size_t next = 0;
    for (const std::size_t inputs = combines ? 3 : 2; operands.size() - next > inputs; ++next) {
      op.to.push_back(program.slot_of(operands[next].reg));
    }
    for (std::size_t i = next; i < operands.size(); ++i) {
      if (operands[i].negated) op.negated |= 1U << (i - next);
      op.from.push_back(program.value_of(operands[i], i - next == 2 ? Type::pred : op.type));
    }
    if (combines) {
      op.detail |= (parts[2] == "and" ? 0 : parts[2] == "or" ? 1 : 2) << 8;
      op.run = combine_comparison;
    } else {
      op.run = comparison_of(op.detail, op.type, std::make_integer_sequence<int, 14>{});
    }
    return op.run != nullptr;
  }
  if (name == "selp") {
    const auto& operands = op.text->operands;
    op.to = {program.slot_of(operands[0].reg)};
    op.from = {program.value_of(operands[1], op.type), program.value_of(operands[2], op.type),
               program.value_of(operands[3], Type::pred)};
    op.run = op.to[0].bytes == 8 ? select<std::uint64_t> : select<std::uint32_t>;
    return true;
  }
  if (name == "shl") op.run = shift_handler<ShiftLeft>(op.type);
  if (name == "shr") op.run = shift_handler<ShiftRight>(op.type);
  if (name == "bfi" && op.type == Type::b32) {
    op.run = apply<InsertBits, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  }
  if (name == "bfe" && op.type == Type::u32) {
    op.run = apply<ExtractBits<std::uint32_t>, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  }
  if (name == "bfe" && op.type == Type::s32) {
    op.run = apply<ExtractBits<std::int32_t>, std::int32_t, std::int32_t, std::uint32_t, std::uint32_t>;
  }
  if (name == "prmt" && parts.size() == 2) {
    op.run = apply<Permute, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  }
  if (name == "shf") {
    op.run = parts[1] == "l" ? apply<FunnelLeft, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>
                             : apply<FunnelRight, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  }
  if (name == "lop3") {
    take_operands(program, op, name);
    op.number = static_cast<int>(op.text->operands.back().bits);
    op.from.resize(3);
    op.run = lookup;
    return true;
  }
  if (op.run == nullptr) op.run = plain_handler(parts, op.type);
  if (op.run == nullptr) return false;
  take_operands(program, op, name);
  return true;
}

}  // namespace lockstep::ptx
