#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"
#include "kernels/optimizer/optimizer.h"

namespace lockstep::kernels {

// Of arguments whose views have dtypes and lengths. `shape`: in the case's name; empty: "N1031".
KernelCase case_of(const AdamW& args, std::string shape = {}, const Draw& weights = {});
KernelCase case_of(const SumOfSquares& args, std::string shape = {});

std::vector<KernelCase> optimizer_test_cases();   // small and odd lengths, all dtypes, early and late steps
std::vector<KernelCase> optimizer_bench_cases();  // from what fits a cache to what does not

}  // namespace lockstep::kernels
