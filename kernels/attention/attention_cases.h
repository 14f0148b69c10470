#pragma once

#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

// Of arguments whose views have dtypes and lengths.
KernelCase case_of(const AttentionForward& args);
KernelCase case_of(const AttentionBackward& args);

std::span<const AttentionShape> attention_test_shapes();

// Causal and not, strided and packed, as many queries as keys and fewer.
std::vector<KernelCase> attention_test_cases();   // small and odd shapes, all dtypes
std::vector<KernelCase> attention_bench_cases();  // the trainer's shapes, and a long sequence

}  // namespace lockstep::kernels
