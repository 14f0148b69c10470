// A launch as a file: entry, grid, parameters, and the buffers that these point to, before and after. `ptx_check dump`
// writes them for other interpreters; `ptx_check launch` runs them, also those of kernels outside of this project.
// docs/gpu.md, "Launches as files", gives the form.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "testing/cuda_stand_in/launch.h"
#include "testing/ptx/count_record.h"
#include "testing/ptx/interpreter.h"

namespace lockstep::ptx {

struct LaunchBuffer {
  std::string name;
  std::vector<std::byte> before;
  std::vector<std::pair<std::size_t, std::size_t>> initialized;  // from, to: bytes that have been written
  std::vector<std::byte> after = {};                             // expected; empty if nothing is
};

// Eight bytes of the parameters that hold an address.
struct LaunchPointer {
  std::size_t at = 0;  // in the block of parameters
  std::string buffer;
  std::size_t offset = 0;  // in the buffer
};

struct LaunchRecord {
  cuda_stand_in::Launch launch;                       // its parameters without addresses
  std::vector<cuda_stand_in::Parameter> places = {};  // where the entry has its parameters
  std::vector<LaunchPointer> pointers = {};
  std::vector<LaunchBuffer> buffers = {};
  DeclaredWork work = {};
};

inline constexpr std::size_t kBufferAlignment = 1024;  // a buffer's first byte has an address that is a multiple

// Writes NAME.json and the buffers' files into the folder.
void write_record(const std::string& folder, const std::string& name, const LaunchRecord& record);
// Throws a usage Error that names the file and what is wrong. `library`: has the entry.
LaunchRecord read_record(const std::string& path, Library& library);

struct LaunchOutcome {
  std::string errors;  // "" if all buffers are as expected
  EntryRuns runs;
};
// Throws a Fault if the kernel makes a mistake.
LaunchOutcome run_record(Library& library, const LaunchRecord& record, const Options& options);

}  // namespace lockstep::ptx
