// Conversions (PTX ISA 9.0, section 9.7.9.21, cvt).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "core/dtype.h"
#include "testing/ptx/lane_registers.h"

namespace lockstep::ptx {
namespace {

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

}  // namespace

bool decode_conversion(Program& program, Op& op) {
  const std::vector<std::string> parts = parts_of(op.text->opcode);
  if (parts[0] != "cvt") return false;
  op.work = Work::convert;
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

}  // namespace lockstep::ptx
