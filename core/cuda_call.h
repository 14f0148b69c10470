// Every CUDA call's result goes through check_cuda, and every launch's through check_launch. CUDA's types stay out of
// headers: a status is an int here.
#pragma once

namespace lockstep::core {

class Stream;

// The rank that makes a call, and its device; the rank is -1 before there are ranks.
struct CudaCaller {
  int rank;
  int device;
};

// Throws Error(cuda) with the call, the rank, the device and CUDA's text, unless `status` is cudaSuccess.
void check_cuda(int status, const char* call, CudaCaller caller);

// check_cuda() for a launch that was just queued on `stream`. A kernel that fails while it runs is reported by a later
// call, under that call's name. With LOCKSTEP_CUDA_SYNC=1 in the environment (read once), check_launch() therefore
// waits until the stream is done, so that the error names the kernel. It does not wait while the stream is captured,
// because nothing runs then.
//
// Unlike CUDA_LAUNCH_BLOCKING=1 this works for ranks that share a GPU: it polls, with the stream's deadline, and holds
// no lock of the driver that a peer's launch would need.
void check_launch(int status, const char* kernel, CudaCaller caller, Stream& stream);

// True if LOCKSTEP_CUDA_EARLY=1 is in the environment (read once): kernels that support it begin before the previous
// kernel has ended (programmatic dependent launch).
bool launches_early();

}  // namespace lockstep::core
