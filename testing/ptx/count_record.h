// Counts of an entry in a case, as a line of a record file (docs/record_format.md, kernel_count).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "testing/ptx/compiled_code.h"
#include "testing/ptx/interpreter.h"

namespace lockstep::ptx {

// The work that a kernel declares; of a kernel that another project gives, what its launch record states.
struct DeclaredWork {
  std::string kernel;  // "softmax_fwd"
  std::string shape;
  std::string dtype;
  std::string choice = {};  // the launcher's
  std::int64_t elems = 1;   // the largest operand's
  double bytes = 0;
  double flops = 0;
};

// "elementwise_kernel<4, 2, GeluOperation<float>>", of a mangled name: without parameters, return type and namespaces.
std::string short_name_of(const std::string& mangled);

// The lines of warps by line of PTX.
std::map<int, std::uint64_t> executed_by_line(const Entry& entry, const EntryRuns& runs);

// A line of JSON. `run`: the identifier of the file's run.
std::string count_line(const std::string& run, const DeclaredWork& work, const Entry& entry, const EntryRuns& runs,
                       const CompiledEntry& compiled);
// The line of the run, which comes first, and its identifier.
struct RunLine {
  std::string line;
  std::string run;
};
RunLine run_line(std::uint64_t seed);

}  // namespace lockstep::ptx
