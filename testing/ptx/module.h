// The text of PTX as data: a module's entries, each with its parameters, registers, variables and instructions. Reads
// what nvcc 13 writes with -ptx (PTX ISA 9.0, chapters 4 and 5); knows no instruction.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::ptx {

enum class Space : std::uint8_t { generic, global, shared, local, param, constant };

struct Operand {
  enum class Kind : std::uint8_t {
    reg,        // %r1, !%p1
    immediate,  // 4, -1, 0f3F800000
    symbol,     // a variable's address, a label, or a special register such as %tid.x
    memory,     // [base + offset], where base is a register or a symbol; with coordinates: [base, {x, y}]
    vector,     // {%f1, %f2}
    sink,       // _
  };
  Kind kind = Kind::sink;
  int reg = -1;
  bool negated = false;
  std::uint64_t bits = 0;  // an immediate's: two's complement, or of the f64 that an f32 is in `is_f32`
  bool is_f32 = false;
  std::string symbol = {};
  std::int64_t offset = 0;
  std::vector<Operand> parts = {};
};

// A place in the source, from .loc: the innermost inlined function's.
struct SourceLine {
  int file = 0;
  int line = 0;
};

struct Instruction {
  std::string opcode;  // "ld.global.v4.f32"
  std::vector<Operand> operands;
  int guard = -1;  // predicate register, -1 for none
  bool guard_negated = false;
  int line = 0;  // in the PTX file, from 1
  SourceLine source = {};
  bool is_mutant = false;  // changed on purpose (mutants.h)
};

struct Register {
  int bytes = 4;  // 0 for a predicate
};

struct Variable {
  std::string name;
  Space space = Space::shared;
  std::size_t align = 1;
  std::size_t size_bytes = 0;
  bool dynamic = false;  // begins where the static ones end
  std::vector<std::uint8_t> initial = {};
};

struct Parameter {
  std::string name;
  std::size_t offset = 0;
  std::size_t size_bytes = 0;
};

struct Entry {
  std::string name;
  std::vector<Parameter> parameters;
  std::vector<Register> registers;
  std::vector<Variable> variables;  // declared in the entry, or in the module and used here
  std::vector<Instruction> instructions;
  std::map<std::string, int, std::less<>> labels;  // index of the next instruction
  int most_threads = 0;                            // .maxntid; 0 if it is not given
  std::vector<std::string> files;                  // by the numbers of SourceLine

  std::size_t parameter_bytes() const;
  std::size_t static_shared_bytes() const;
  std::string place_of(const Instruction& instruction) const;  // "PTX line 12, softmax.cu:34"
};

// A module's entries are parsed when they are asked for; a file of 400,000 lines has a hundred.
class Module {
 public:
  // Throws an Error that names the file, and the line if there is one.
  static Module read(const std::string& path);

  const std::vector<std::string>& entry_names() const { return names_; }
  std::shared_ptr<const Entry> entry(std::string_view name) const;

 private:
  struct Span {
    std::size_t begin;
    std::size_t end;
    int line;
  };
  std::string path_;
  std::string text_;
  std::vector<std::string> names_;
  std::map<std::string, Span, std::less<>> spans_;
  std::vector<Variable> variables_;
  std::vector<std::string> files_;
};

}  // namespace lockstep::ptx
