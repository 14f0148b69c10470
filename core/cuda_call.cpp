#include "core/cuda_call.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "core/error.h"

namespace lockstep::core {

void check_cuda(int status, const char* call, CudaPlace place) {
  if (status == cudaSuccess) return;
  const auto error = static_cast<cudaError_t>(status);
  cudaGetLastError();  // so that a failure which leaves the device usable is not reported again by the next call
  throw Error(Failure::cuda, fmt::format("{} failed on rank {}, CUDA device {}: {} ({})", call, place.rank,
                                         place.device, cudaGetErrorString(error), cudaGetErrorName(error)));
}

}  // namespace lockstep::core
