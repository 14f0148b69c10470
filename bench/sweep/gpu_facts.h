// What a record says of the GPUs that a sweep ran on, and of the libraries that ran it.
#pragma once

#include <vector>

#include "bench/sweep/recorder.h"
#include "core/device_cuda.h"

namespace lockstep::sweep {

// `ranks_per_gpu`: the most.
void add_gpu_facts(const std::vector<core::CudaDeviceInfo>& gpus, int ranks_per_gpu, RunFacts& facts);

}  // namespace lockstep::sweep
