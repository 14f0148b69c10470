// What runs on the interpreter: every kernel's test cases, and those by which its launcher chooses another entry.
#pragma once

#include <string>
#include <vector>

#include "kernels/base/kernel_case.h"
#include "testing/ptx/machine.h"

namespace lockstep::ptx {

struct DeviceCase {
  std::string name;  // "softmax/softmax_fwd/f32/R3_C17", with ",wgmma" or ",shifted"
  kernels::KernelCase kernel_case;
  std::string products = {};  // how attention and experts multiply; empty: as by default
  int misalign_elems = 0;
};

// In a fixed order. Cases with an operand of more than `most_elems` elements are left out.
std::vector<DeviceCase> device_cases(std::int64_t most_elems);

// Runs a case through the shipped launch path; the stand-in must have an executor. Returns what is wrong, "" if
// nothing.
std::string run_case(const DeviceCase& device_case, std::uint64_t seed);

}  // namespace lockstep::ptx
