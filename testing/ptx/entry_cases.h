// Cases for entries that no family's own cases launch: what launchers decide by the widths of accesses, pairs of types,
// the length of rows, the number of tiles, and the GPU.
#pragma once

#include <vector>

#include "kernels/base/kernel_case.h"

namespace lockstep::ptx {

// Rings of buffers that are used several times: more tiles of keys, queries or depth than a ring has stages.
std::vector<kernels::KernelCase> attention_ring_cases(core::DType dtype);
std::vector<kernels::KernelCase> grouped_cases(core::DType dtype);
// Rows too long for the shared memory of one block.
std::vector<kernels::KernelCase> long_row_cases(core::DType dtype);
// More rows than the blocks of one multiprocessor.
std::vector<kernels::KernelCase> many_row_cases(core::DType dtype);
// Operands of two types, and rows of whole accesses, for families that have none.
std::vector<kernels::KernelCase> typed_cases();

}  // namespace lockstep::ptx
