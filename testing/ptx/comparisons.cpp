// Comparisons, and what predicates decide: setp, selp, and the logic of predicates (PTX ISA 9.0, sections 9.7.6
// to 9.7.8).
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "testing/ptx/lane_registers.h"

namespace lockstep::ptx {
namespace {

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
  (void)((compare == kCompares ? (found = comparison<kCompares>(type), true) : false) || ...);
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

bool decode_comparison(Program& program, Op& op, const std::vector<std::string>& parts) {
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

}  // namespace

bool decode_predicate(Program& program, Op& op) {
  const std::vector<std::string> parts = parts_of(op.text->opcode);
  op.type = type_named(parts.back());
  op.work = op.type == Type::f32 || op.type == Type::f64 ? Work::real : Work::integer;
  if (parts[0] == "setp") return decode_comparison(program, op, parts);
  if (parts[0] != "selp") return false;
  const auto& operands = op.text->operands;
  op.to = {program.slot_of(operands[0].reg)};
  op.from = {program.value_of(operands[1], op.type), program.value_of(operands[2], op.type),
             program.value_of(operands[3], Type::pred)};
  op.run = op.to[0].bytes == 8 ? select<std::uint64_t> : select<std::uint32_t>;
  return true;
}

}  // namespace lockstep::ptx
