#include "core/cuda_call.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "core/device.h"
#include "core/error.h"

namespace lockstep::core {
namespace {

bool is_one(const char* variable) {
  const char* const text = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): nobody sets it
  return text != nullptr && std::string_view(text) == "1";
}

bool synchronizes_launches() {
  static const bool asked = is_one("LOCKSTEP_CUDA_SYNC");
  return asked;
}

bool is_captured(const Stream& stream, CudaCaller caller) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream.native()), &status), "cudaStreamIsCapturing",
             caller);
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

void check_cuda(int status, const char* call, CudaCaller caller) {
  if (status == cudaSuccess) return;
  const auto error = static_cast<cudaError_t>(status);
  cudaGetLastError();  // so that a failure which leaves the device usable is not reported again by the next call
  throw Error(Failure::cuda, fmt::format("{} failed on rank {}, CUDA device {}: {} ({})", call, caller.rank,
                                         caller.device, cudaGetErrorString(error), cudaGetErrorName(error)));
}

void check_launch(int status, const char* kernel, CudaCaller caller, Stream& stream) {
  check_cuda(status, kernel, caller);
  if (!synchronizes_launches() || is_captured(stream, caller)) return;
  try {
    stream.synchronize();
  } catch (const Error& error) {
    throw Error(error.failure(), fmt::format("{} (found by LOCKSTEP_CUDA_SYNC=1): {}", kernel, error.what()));
  }
}

bool launches_early() {
  static const bool asked = is_one("LOCKSTEP_CUDA_EARLY");
  return asked;
}

}  // namespace lockstep::core
