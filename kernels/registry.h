// All kernel cases of all families, in one explicit list: what the GPU test runs and the benchmark offers.
#pragma once

#include <span>
#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

struct KernelFamily {
  const char* name;                          // "gemm", "attention", ...
  std::vector<KernelCase> (*test_cases)();   // small and odd shapes
  std::vector<KernelCase> (*bench_cases)();  // the trainer's shapes
};

std::span<const KernelFamily> kernel_families();
std::vector<KernelCase> all_test_cases();
std::vector<KernelCase> all_bench_cases();

}  // namespace lockstep::kernels
