#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"
#include "kernels/norm/norm.h"

namespace lockstep::kernels {

// Of arguments whose views have dtypes and lengths. `shape`: in the case's name; empty: "R5_C3".
KernelCase case_of(const NormForward& args, std::string shape = {});
KernelCase case_of(const NormBackward& args, std::string shape = {});

std::vector<KernelCase> norm_test_cases();   // small and odd shapes, all dtypes
std::vector<KernelCase> norm_bench_cases();  // the trainer's shapes

}  // namespace lockstep::kernels
