// Ceilings that are measured through the device's own library: they are the same code on every device.
#pragma once

#include "bench/kernels/ceilings.h"
#include "bench/kernels/operand_sets.h"
#include "bench/kernels/place.h"

namespace lockstep::kernel_bench {

// The product of two square matrices of `columns` columns, by our GEMM, which takes the fastest that it has.
Ceiling gemm_ceiling(Place& place, Arena& arena, const std::string& device, int threads, core::DType dtype,
                     std::int64_t columns);

// The smallest kernel there is: one element of a GELU.
Ceiling launch_ceiling(Place& place, Arena& arena, const std::string& device);

// Copies within the device's memory, products and launches on a CUDA device.
Ceilings measure_cuda_ceilings(core::Device& device);

}  // namespace lockstep::kernel_bench
