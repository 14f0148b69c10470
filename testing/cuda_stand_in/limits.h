// Launches that a driver refuses.
#pragma once

#include <cstddef>

#include "testing/cuda_stand_in/launch.h"

namespace lockstep::cuda_stand_in {

struct LaunchRequest {
  Extent grid;
  Extent block;
  Extent cluster;
  std::size_t dynamic_shared_bytes = 0;
  std::size_t opted_in_bytes = 0;  // cudaFuncAttributeMaxDynamicSharedMemorySize; 0 if it was not set
  bool cooperative = false;
};

// Throws Refused, with CUDA's code.
void check_launch(const KernelFacts& facts, const LaunchRequest& request, const DescribedGpu& described);

// Dynamic shared memory that a kernel may have without opting in, and the most that it may opt in to.
std::size_t usual_dynamic_shared_bytes(const KernelFacts& facts);
std::size_t most_dynamic_shared_bytes(const KernelFacts& facts);

// Blocks of a kernel that a multiprocessor holds at the same time.
int blocks_per_multiprocessor(const KernelFacts& facts, unsigned block_threads, std::size_t dynamic_shared_bytes);

}  // namespace lockstep::cuda_stand_in
