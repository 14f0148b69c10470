#include "testing/ptx/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace lockstep::ptx {
namespace {

struct NamedType {
  std::string_view name;
  Type type;
  int bytes;
  bool is_signed;
};
constexpr NamedType kTypes[] = {
    {"pred", Type::pred, 0, false}, {"b8", Type::b8, 1, false},   {"b16", Type::b16, 2, false},
    {"b32", Type::b32, 4, false},   {"b64", Type::b64, 8, false}, {"u8", Type::u8, 1, false},
    {"u16", Type::u16, 2, false},   {"u32", Type::u32, 4, false}, {"u64", Type::u64, 8, false},
    {"s8", Type::s8, 1, true},      {"s16", Type::s16, 2, true},  {"s32", Type::s32, 4, true},
    {"s64", Type::s64, 8, true},    {"f16", Type::f16, 2, false}, {"bf16", Type::bf16, 2, false},
    {"f32", Type::f32, 4, false},   {"f64", Type::f64, 8, false},
};

constexpr bool (*kDecoders[])(Program&, Op&) = {decode_control,     decode_memory_barrier, decode_arithmetic,
                                                decode_predicate,   decode_conversion,     decode_memory,
                                                decode_tensor_copy, decode_tensor};

const NamedType& facts_of(Type type) {
  return *std::find_if(std::begin(kTypes), std::end(kTypes), [&](const NamedType& one) { return one.type == type; });
}

}  // namespace

int bytes_of(Type type) {
  return facts_of(type).bytes;
}
bool is_signed(Type type) {
  return facts_of(type).is_signed;
}
Type type_named(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& one) { return one.name == name; });
  return found == std::end(kTypes) ? Type::none : found->type;
}

std::vector<std::string> parts_of(const std::string& opcode) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= opcode.size();) {
    const std::size_t end = std::min(opcode.find('.', begin), opcode.size());
    parts.push_back(opcode.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool has(const std::vector<std::string>& parts, std::string_view wanted) {
  return std::find(parts.begin(), parts.end(), wanted) != parts.end();
}

Slot Program::new_slot(int bytes) {
  Slot slot{.word = static_cast<std::uint32_t>(words_.size()),
            .index = static_cast<std::uint32_t>(num_slots_++),
            .bytes = static_cast<std::uint8_t>(bytes)};
  words_.resize(words_.size() + (bytes == 8 ? 64 : 32));  // predicates too, so that words of 64 bits stay aligned
  return slot;
}

Slot Program::constant(std::uint64_t bits, int bytes) {
  const auto [found, is_new] = constants_.try_emplace({bits, bytes});
  if (is_new) {
    found->second = new_slot(bytes);
    for (int lane = 0; lane < 32; ++lane) {
      if (bytes == 8) {
        std::memcpy(&words_[found->second.word + static_cast<std::size_t>(2 * lane)], &bits, 8);
      } else {
        words_[found->second.word + static_cast<std::size_t>(lane)] = static_cast<std::uint32_t>(bits);
      }
    }
    if (bytes == 0) words_[found->second.word] = bits != 0 ? ~0U : 0U;
  }
  return found->second;
}

Slot Program::special(const std::string& name) {
  for (const Special& one : specials_) {
    if (one.name == name) return one.slot;
  }
  specials_.push_back({name, new_slot(name == "%globaltimer" || name == "%clock64" ? 8 : 4)});
  return specials_.back().slot;
}

Slot Program::value_of(const Operand& operand, Type type) {
  const int bytes = type == Type::none ? 4 : std::max(4, bytes_of(type));
  switch (operand.kind) {
    case Operand::Kind::reg:
      return slot_of(operand.reg);
    case Operand::Kind::immediate: {
      std::uint64_t bits = operand.bits;
      if (operand.is_f32 && type == Type::f64) {
        bits =
            std::bit_cast<std::uint64_t>(static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits))));
      }
      if (type == Type::pred) return constant(bits != 0 ? 1 : 0, 0);
      if (bytes == 4) bits &= 0xffffffffU;
      return constant(bits, bytes);
    }
    case Operand::Kind::symbol: {
      if (operand.symbol.front() == '%') return special(operand.symbol);
      const auto found = addresses_.find(operand.symbol);
      if (found == addresses_.end()) break;
      return constant(found->second + static_cast<std::uint64_t>(operand.offset), bytes);
    }
    default:
      break;
  }
  throw core::Error(core::Failure::usage, fmt::format("'{}' is not a value", operand.symbol));
}

Slot Program::address_of(const Operand& operand) {
  if (operand.reg >= 0) return slot_of(operand.reg);
  if (operand.symbol.empty()) return constant(0, 8);
  const auto found = addresses_.find(operand.symbol);
  if (found == addresses_.end()) {
    throw core::Error(core::Failure::usage, fmt::format("variable '{}' is not declared", operand.symbol));
  }
  return constant(found->second, 8);
}

void Program::place_variables() {
  std::size_t shared = 0;
  for (const Variable& variable : entry_->variables) {
    if (variable.space == Space::shared && !variable.dynamic) {
      shared = aligned(shared, variable.align);
      addresses_[variable.name] = shared;
      shared += variable.size_bytes;
    } else if (variable.space == Space::local) {
      local_bytes_ = aligned(local_bytes_, std::max<std::size_t>(16, variable.align));
      addresses_[variable.name] = kLocalWindow + local_bytes_;
      local_bytes_ += variable.size_bytes;
    }
  }
  dynamic_shared_at_ = shared;
  for (const Variable& variable : entry_->variables) {
    if (variable.dynamic) dynamic_shared_at_ = aligned(dynamic_shared_at_, variable.align);
  }
  for (const Variable& variable : entry_->variables) {
    if (variable.dynamic) addresses_[variable.name] = dynamic_shared_at_;
  }
  for (const Parameter& parameter : entry_->parameters) addresses_[parameter.name] = parameter.offset;
}

Program::Program(std::shared_ptr<const Entry> entry) : entry_(std::move(entry)) {
  for (const Register& reg : entry_->registers) slots_.push_back(new_slot(reg.bytes == 0 ? 0 : std::max(4, reg.bytes)));
  place_variables();
  for (const Instruction& instruction : entry_->instructions) {
    Op op;
    op.text = &instruction;
    op.guarded = instruction.guard >= 0;
    if (op.guarded) op.guard = slot_of(instruction.guard);
    op.guard_negated = instruction.guard_negated;
    bool known = false;
    try {
      known = std::any_of(std::begin(kDecoders), std::end(kDecoders), [&](auto decode) { return decode(*this, op); });
    } catch (const core::Error& error) {
      throw core::Error(core::Failure::usage, fmt::format("{}: {}: {}: {}", entry_->name, entry_->place_of(instruction),
                                                          instruction.opcode, error.what()));
    }
    if (!known) {
      throw core::Error(core::Failure::usage,
                        fmt::format("{}: {}: '{}' is not an instruction that the interpreter has", entry_->name,
                                    entry_->place_of(instruction), instruction.opcode));
    }
    has_products_ = has_products_ || instruction.opcode.starts_with("wgmma.");
    ops_.push_back(std::move(op));
  }
}

}  // namespace lockstep::ptx
