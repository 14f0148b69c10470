// Which CUDA devices there are, and why there are none.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>

#include "core/cuda_call.h"
#include "core/device_cuda.h"

namespace lockstep::core {
namespace {

CudaDeviceInfo info_of(int index) {
  const CudaPlace place{.rank = -1, .device = index};
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties", place);
  CudaDeviceInfo info{.index = index,
                      .name = properties.name,
                      .memory_bytes = properties.totalGlobalMem,
                      .pci_id = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID,
                                            properties.pciDeviceID),
                      .uuid = {},
                      .compute_capability = 10 * properties.major + properties.minor,
                      .num_multiprocessors = properties.multiProcessorCount};
  std::copy_n(reinterpret_cast<const std::uint8_t*>(properties.uuid.bytes), info.uuid.size(), info.uuid.begin());
  return info;
}

}  // namespace

std::optional<std::string> why_no_cuda() {
  int driver = 0;
  cudaDriverGetVersion(&driver);  // leaves 0 where no driver is loaded
  if (driver == 0) return "no CUDA device: no NVIDIA driver is loaded";
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (status != cudaSuccess) return fmt::format("no CUDA device: {}", cudaGetErrorString(status));
  if (count == 0) return "no CUDA device: the driver shows none";
  return std::nullopt;
}

std::vector<CudaDeviceInfo> cuda_devices() {
  std::vector<CudaDeviceInfo> devices;
  if (why_no_cuda()) return devices;
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount", {.rank = -1, .device = -1});
  for (int index = 0; index < count; ++index) devices.push_back(info_of(index));
  return devices;
}

bool cuda_can_reach(int from, int to) {
  if (from == to) return true;
  int reaches = 0;
  check_cuda(cudaDeviceCanAccessPeer(&reaches, from, to), "cudaDeviceCanAccessPeer", {.rank = -1, .device = from});
  return reaches != 0;
}

}  // namespace lockstep::core
