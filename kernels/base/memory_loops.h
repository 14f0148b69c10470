// Loops that do nothing but move the device's memory, for the ceilings that kernels are held against: a sum, which only
// reads, and STREAM's triad, which reads two bytes for each that it writes (McCalpin 1995, STREAM). A copy is
// copy_on_device() (cuda_context.h).
#pragma once

#include <cstdint>

#include "kernels/base/cuda_context.h"

namespace lockstep::kernels {

// Both take arrays of f32 in the device's memory, which begin at a multiple of 16 bytes and have a multiple of 4
// elements.

// Blocks of read_on_device(): each writes the sum of the elements that it has read, so that no load can be left out.
std::int64_t read_blocks(const CudaContext& cuda, std::int64_t count);
// sums: [read_blocks()]
void read_on_device(const CudaContext& cuda, const float* from, std::int64_t count, float* sums);

// to[i] = a[i] + factor * b[i]
void triad_on_device(const CudaContext& cuda, const float* a, const float* b, float factor, float* to,
                     std::int64_t count);

}  // namespace lockstep::kernels
