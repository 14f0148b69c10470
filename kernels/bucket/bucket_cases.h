#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

std::vector<KernelCase> bucket_test_cases();   // few, many, tiny and large pieces
std::vector<KernelCase> bucket_bench_cases();  // the gradients of a layer of GPT-2

}  // namespace lockstep::kernels
