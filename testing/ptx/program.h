// An entry made ready to run: each instruction is a function with the places of its operands, each register has its
// place in a warp's register file, and constants (immediates, addresses of variables and parameters) are registers that
// nobody writes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "testing/ptx/memory.h"
#include "testing/ptx/module.h"

namespace lockstep::ptx {

class Warp;
struct Op;

enum class Type : std::uint8_t {
  none,
  pred,
  b8,
  b16,
  b32,
  b64,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  bf16,
  f32,
  f64
};
int bytes_of(Type type);
bool is_signed(Type type);
Type type_named(std::string_view name);  // none if there is no such type

// A register of all lanes: 32 words of 32 bits, 32 of 64 bits, or for a predicate one word with a bit per lane.
struct Slot {
  std::uint32_t word = 0;   // in the register file
  std::uint32_t index = 0;  // index of its poison
  std::uint8_t bytes = 4;   // 0: a predicate
};

// The kind of work that an instruction is, for counts.
enum class Work : std::uint8_t { integer, real, special, convert, move, memory, control, barrier, tensor };
inline constexpr int kWorks = 9;

// Which lanes must be at the instruction before it runs.
enum class Meeting : std::uint8_t {
  none,
  mask,  // those of the operand `mask`
  warp,  // all that have not exited (.aligned)
};

enum class Order : std::uint8_t { weak, relaxed, acquire, release, acq_rel };

struct Op {
  // Runs it for some lanes; false if it must be tried again later.
  bool (*run)(Warp& warp, const Op& op, std::uint32_t lanes) = nullptr;
  std::vector<Slot> to;
  std::vector<Slot> from;
  Slot guard;
  bool guarded = false;
  bool guard_negated = false;
  std::uint32_t negated = 0;  // operands `from` that are predicates with "!", a bit each
  Meeting meeting = Meeting::none;
  Slot mask;        // for Meeting::mask
  int target = -1;  // where a branch goes
  bool exits = false;
  Work work = Work::integer;
  // Modifiers.
  Type type = Type::none;
  Type from_type = Type::none;
  Space space = Space::generic;
  Scope scope = Scope::none;
  Order order = Order::weak;
  int number = 0;           // number of what the instruction counts: bytes, groups, columns, vector elements
  std::int64_t offset = 0;  // added to an address
  int detail = 0;           // chosen by the instruction's function
  const Instruction* text = nullptr;
};

class Program {
 public:
  // Throws an Error that names the instruction if one is not known.
  explicit Program(std::shared_ptr<const Entry> entry);

  const Entry& entry() const { return *entry_; }
  const std::vector<Op>& ops() const { return ops_; }
  // A warp's registers before its first instruction; thread-dependent ones are set by the warp.
  const std::vector<std::uint32_t>& words() const { return words_; }
  std::size_t num_slots() const { return num_slots_; }  // slots that have poison
  const std::vector<Slot>& registers() const { return slots_; }

  // Registers that depend on thread, block and launch: "%tid.x" and so on.
  struct Special {
    std::string name;
    Slot slot;
  };
  const std::vector<Special>& specials() const { return specials_; }
  std::size_t dynamic_shared_at() const { return dynamic_shared_at_; }
  bool has_products() const { return has_products_; }  // wgmma
  std::size_t local_bytes() const { return local_bytes_; }

  // For decoding.
  Slot slot_of(int reg) const { return slots_[static_cast<std::size_t>(reg)]; }
  Slot constant(std::uint64_t bits, int bytes);
  Slot value_of(const Operand& operand, Type type);
  Slot address_of(const Operand& operand);  // without its offset

 private:
  Slot new_slot(int bytes);
  Slot special(const std::string& name);
  void place_variables();

  std::shared_ptr<const Entry> entry_;
  std::vector<Slot> slots_;
  std::vector<Op> ops_;
  std::vector<std::uint32_t> words_;
  std::size_t num_slots_ = 0;
  std::vector<Special> specials_;
  std::map<std::string, std::uint64_t, std::less<>> addresses_;
  std::map<std::pair<std::uint64_t, int>, Slot> constants_;
  std::size_t dynamic_shared_at_ = 0;
  std::size_t local_bytes_ = 0;
  bool has_products_ = false;
};

// Generic addresses outside of global memory. A shared address has 32 bits: the block's rank in its cluster plus 1 in
// the highest byte (0: the block itself), and the offset in its shared memory.
inline constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << 60;
inline constexpr std::uint64_t kLocalWindow = std::uint64_t{2} << 60;
inline constexpr std::uint64_t kParamWindow = std::uint64_t{3} << 60;
inline constexpr std::uint64_t kWindowMask = std::uint64_t{3} << 60;
inline constexpr int kRankShift = 24;

// Fills run, operands and modifiers of the operation; false if the instruction is not known. One function per chapter
// of the PTX ISA's instruction set.
bool decode_arithmetic(Program& program, Op& op);
bool decode_predicate(Program& program, Op& op);
bool decode_conversion(Program& program, Op& op);
bool decode_memory(Program& program, Op& op);
bool decode_control(Program& program, Op& op);
bool decode_memory_barrier(Program& program, Op& op);
bool decode_tensor(Program& program, Op& op);
bool decode_tensor_copy(Program& program, Op& op);

// The parts of an opcode: "ld", "global", "f32".
std::vector<std::string> parts_of(const std::string& opcode);
bool has(const std::vector<std::string>& parts, std::string_view wanted);

}  // namespace lockstep::ptx
