// Cases by which kernels are counted: one of each kernel and dtype, with operands whose sizes leave no tails.
#pragma once

#include <string>
#include <vector>

#include "kernels/base/kernel_case.h"
#include "testing/ptx/device_cases.h"

namespace lockstep::ptx {

struct CountCase {
  kernels::KernelCase kernel_case;
  std::string choice;      // the launcher's: "mma", "wgmma"; "" if there is none
  DeviceCase device_case;  // launches it once; results are not checked
};

// In the order of the families: of each kernel and dtype the benchmark's case with the least work, or, where that is
// too much for an interpreter, the tests' largest.
std::vector<CountCase> count_cases();

}  // namespace lockstep::ptx
