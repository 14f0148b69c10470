// Replaces device_cuda.cpp in builds without CUDA. LOCKSTEP_WHY_CUDA is the reason that CMake found at
// configure time.
#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::core {

std::optional<std::string> why_no_cuda() {
  return std::string("CUDA is not built in: ") + LOCKSTEP_WHY_CUDA;
}

CudaVersions cuda_versions() {
  return {};
}

std::vector<CudaDeviceInfo> cuda_devices() {
  return {};
}

std::size_t cuda_free_bytes(int /*index*/) {
  throw Error(Failure::not_built, *why_no_cuda());
}

std::unique_ptr<Stream> make_urgent_stream(Device& /*device*/) {
  throw Error(Failure::not_built, *why_no_cuda());
}

std::unique_ptr<Stream> make_null_stream(Device& /*device*/) {
  throw Error(Failure::not_built, *why_no_cuda());
}

std::unique_ptr<Device> make_cuda_device(int /*index*/, int /*rank*/, std::chrono::nanoseconds /*timeout*/) {
  throw Error(Failure::not_built, *why_no_cuda());
}

bool trace_ranges_built() {
  return false;
}
ScopedRange::ScopedRange(const char* /*name*/) {}
ScopedRange::~ScopedRange() = default;

}  // namespace lockstep::core
