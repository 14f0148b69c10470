#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"
#include "kernels/residual/residual.h"

namespace lockstep::kernels {

// Of arguments whose views have dtypes and lengths. `shape`: in the case's name; empty: "N1031".
KernelCase case_of(const ResidualAdd& args, std::string shape = {});

std::vector<KernelCase> residual_test_cases();   // small and odd shapes, all dtypes
std::vector<KernelCase> residual_bench_cases();  // the trainer's shapes

}  // namespace lockstep::kernels
