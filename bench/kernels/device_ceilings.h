// Ceilings that are measured through the kernels themselves: the same code on every device.
#pragma once

#include "bench/kernels/ceilings.h"
#include "bench/kernels/operand_sets.h"
#include "bench/kernels/timed_device.h"

namespace lockstep::kernel_bench {

// The product of two square matrices with `columns` columns by our GEMM, which chooses its fastest implementation.
Ceiling gemm_ceiling(TimedDevice& timed, Arena& arena, const std::string& device, int threads, core::DType dtype,
                     std::int64_t columns);

// The smallest kernel: a GELU of one element.
Ceiling launch_ceiling(TimedDevice& timed, Arena& arena, const std::string& device);

// Measures copies, sums and triads within the device's memory, products and launches on a CUDA device.
Ceilings measure_cuda_ceilings(core::Device& device);

}  // namespace lockstep::kernel_bench
