// Cases that run on the interpreter: every kernel's test cases, those by which its launcher chooses another entry, and
// collectives of ranks whose kernels wait for each other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::ptx {

struct DeviceCase {
  std::string name;         // "softmax/softmax_fwd/f32/R3_C17", with ",wgmma" or ",shifted"
  std::int64_t most_elems;  // in its largest operand
  // Runs it through the shipped launch path; the stand-in must have an executor. Returns what is wrong, "" if nothing.
  std::function<std::string(std::uint64_t seed)> run;
  bool waits_for_others = false;  // kernels wait for those of other ranks, or for the host
};

// In a fixed order. Cases with an operand of more than `most_elems` elements are left out.
std::vector<DeviceCase> device_cases(std::int64_t most_elems);

}  // namespace lockstep::ptx
