// Attention's cases by shape, for its own tests. The registry lists cases that are causal and not, strided and packed,
// with as many queries as keys and fewer.
#pragma once

#include <span>

#include "kernels/attention/attention.h"
#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

// Makes the test case for arguments whose views have dtypes and lengths.
KernelCase case_of(const AttentionForward& args);
KernelCase case_of(const AttentionBackward& args);

std::span<const AttentionShape> attention_test_shapes();
// Shapes that wgmma takes: tails of tiles, several tiles, strides, groups.
std::span<const AttentionShape> attention_wgmma_test_shapes();

}  // namespace lockstep::kernels
