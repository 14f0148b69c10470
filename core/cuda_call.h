// Every CUDA call's result goes through check_cuda. CUDA's types stay out of headers: a status is an int here.
#pragma once

namespace lockstep::core {

// Who calls; rank -1 where there are no ranks yet.
struct CudaPlace {
  int rank;
  int device;
};

// Throws Error(cuda) that names the call, the rank, the device and CUDA's text, unless `status` is cudaSuccess.
void check_cuda(int status, const char* call, CudaPlace place);

}  // namespace lockstep::core
