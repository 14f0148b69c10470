// Copies on a CUDA device, as a ceiling of benchmarks and a step of collectives. (Graphs: core/capture.h.)
#pragma once

#include <cstddef>

#include "kernels/base/cuda_context.h"

namespace lockstep::kernels {

// Queues a copy between two places of the device's memory.
void copy_on_device(CudaContext& cuda, void* to, const void* from, std::size_t size_bytes);

}  // namespace lockstep::kernels
