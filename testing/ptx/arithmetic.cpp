// Integer and floating point arithmetic, logic, and data movement within registers (PTX ISA 9.0, sections 9.7.1 to
// 9.7.9): the same computation in each lane.
#include <string>
#include <type_traits>
#include <vector>

#include "testing/ptx/arithmetic_functions.h"
#include "testing/ptx/lane_registers.h"

namespace lockstep::ptx {
namespace {

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
