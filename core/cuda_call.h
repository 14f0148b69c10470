// Every CUDA call's result goes through check_cuda, every launch's through check_launch. CUDA's types stay out of
// headers: a status is an int here.
#pragma once

namespace lockstep::core {

class Stream;

// The caller; rank -1 where there are no ranks yet.
struct CudaPlace {
  int rank;
  int device;
};

// Throws Error(cuda) that names the call, the rank, the device and CUDA's text, unless `status` is cudaSuccess.
void check_cuda(int status, const char* call, CudaPlace place);

// check_cuda() for what was just queued on `stream`. What fails while it runs is reported by whatever call comes later,
// under that call's name. With LOCKSTEP_CUDA_SYNC=1 in the environment (read once) this therefore waits until the
// stream is done, and an error names the kernel. A stream that is captured is left alone, as nothing runs.
//
// Ranks that share a GPU can use it, as CUDA_LAUNCH_BLOCKING=1 cannot be: it waits by asking, with the stream's
// deadline, and holds no lock of the driver that a peer's launch would need.
void check_launch(int status, const char* kernel, CudaPlace place, Stream& stream);

// LOCKSTEP_CUDA_EARLY=1 in the environment (read once): kernels that can begin before the one before them has ended do.
bool launches_early();

}  // namespace lockstep::core
