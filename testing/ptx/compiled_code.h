// Results of ptxas for entries: registers, spills and, where nvdisasm is in PATH, the machine's instructions (SASS).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::ptx {

// A machine instruction and the line of PTX that it was made of; 0 if that is not known.
struct SassInstruction {
  std::string operation;  // "LDG.E.128"
  int ptx_line = 0;
};
using SassBlock = std::vector<SassInstruction>;  // without a jump but at its end

struct CompiledEntry {
  int registers = 0;             // per thread
  std::int64_t spill_bytes = 0;  // stored and loaded by a thread because registers were too few
  std::optional<std::vector<SassBlock>> sass = {};
};

// Compiles entries of a PTX file for the target that it names; by their names in the file. Throws an Error with the
// text of ptxas if that fails. May be called by several threads, each with another file.
std::map<std::string, CompiledEntry> compiled(const std::string& ptx_file, const std::vector<std::string>& entries);

// Instructions that warps execute, estimated from how often they executed each line of the PTX, in which the compiler's
// copies of a loop's body are one. An instruction runs as often as most others of its block do.
struct SassCounts {
  double instructions = 0;
  double special = 0;  // by the special function units (MUFU)
};
SassCounts executed_sass(const std::vector<SassBlock>& blocks, const std::map<int, std::uint64_t>& executed_by_line);

// For tests: reads what `ptxas -v` and `nvdisasm -c -gp` print.
std::map<std::string, CompiledEntry> read_ptxas(const std::string& text);
std::map<std::string, std::vector<SassBlock>> read_nvdisasm(const std::string& text);

}  // namespace lockstep::ptx
