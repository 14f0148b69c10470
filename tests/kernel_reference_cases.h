// Cases for tests/test_gradients.py: small shapes of every kernel that has a gradient, and of AdamW.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels::tests {

struct ReferenceCase {
  KernelCase one;
  std::map<std::string, double> arguments;  // integers, flags and factors, by their names in the kernel's struct
};

std::vector<ReferenceCase> reference_cases();

}  // namespace lockstep::kernels::tests
