// Lists the CUDA devices, or says why there are none.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include "core/cuda_call.h"
#include "core/device_cuda.h"

namespace lockstep::core {
namespace {

double clock_mhz(int index) {
  int khz = 0;
  const bool told = cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, index) == cudaSuccess;
  cudaGetLastError();
  return told ? khz / 1e3 : 0;
}

std::optional<bool> shared_by_mps(int index) {
  int shared = 0;
  const bool told = cudaDeviceGetAttribute(&shared, cudaDevAttrMpsEnabled, index) == cudaSuccess;
  cudaGetLastError();
  return told ? std::optional(shared != 0) : std::nullopt;
}

// Version 13020 is 13.2.
std::string version_text(int version) {
  return version == 0 ? "" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

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
                      .num_multiprocessors = properties.multiProcessorCount,
                      .clock_mhz = clock_mhz(index),
                      .l2_bytes = static_cast<std::size_t>(properties.l2CacheSize),
                      .shared_by_mps = shared_by_mps(index)};
  std::copy_n(reinterpret_cast<const std::uint8_t*>(properties.uuid.bytes), info.uuid.size(), info.uuid.begin());
  return info;
}

// Kernels of ranks that share a GPU wait for each other, and kernels of two streams that share a connection to the GPU
// run one after the other. The driver makes 8 connections by default and 32 at most (CUDA Programming Guide, "CUDA
// Environment Variables"). Loading a kernel may wait until the device is idle, so it must not happen while a kernel of
// ours waits for another rank's (the same guide, "Lazy Loading": issues when adopting it): all kernels are loaded at
// once. CUDA reads these variables when it starts, so every program of ours must list GPUs here before it calls
// anything else of CUDA. Variables that the user has set are kept.
bool prepare_environment() {
  return setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0) == 0 &&  // NOLINT(concurrency-mt-unsafe): before any rank
         setenv("CUDA_MODULE_LOADING", "EAGER", 0) == 0;         // NOLINT(concurrency-mt-unsafe)
}

}  // namespace

std::optional<std::string> why_no_cuda() {
  [[maybe_unused]] static const bool prepared = prepare_environment();
  int driver = 0;
  cudaDriverGetVersion(&driver);  // leaves 0 if no driver is loaded
  if (driver == 0) return "no CUDA device: no NVIDIA driver is loaded";
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (status != cudaSuccess) return fmt::format("no CUDA device: {}", cudaGetErrorString(status));
  if (count == 0) return "no CUDA device: the driver reports none";
  return std::nullopt;
}

CudaVersions cuda_versions() {
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  return {.driver = version_text(driver), .runtime = version_text(runtime)};
}

std::vector<CudaDeviceInfo> cuda_devices() {
  std::vector<CudaDeviceInfo> devices;
  if (why_no_cuda()) return devices;
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount", {.rank = -1, .device = -1});
  for (int index = 0; index < count; ++index) devices.push_back(info_of(index));
  return devices;
}

std::size_t cuda_free_bytes(int index) {
  const CudaPlace place{.rank = -1, .device = index};
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check_cuda(cudaSetDevice(index), "cudaSetDevice", place);
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo", place);
  return free_bytes;
}

bool cuda_can_reach(int from, int to) {
  if (from == to) return true;
  int reaches = 0;
  check_cuda(cudaDeviceCanAccessPeer(&reaches, from, to), "cudaDeviceCanAccessPeer", {.rank = -1, .device = from});
  return reaches != 0;
}

namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CudaIpcHandle));

void activate(CudaPlace place) {
  check_cuda(cudaSetDevice(place.device), "cudaSetDevice", place);
}

}  // namespace

void allow_peer_access(CudaPlace place, int peer) {
  if (peer == place.device) return;
  activate(place);
  const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {  // by another rank of this process
    cudaGetLastError();
    return;
  }
  check_cuda(status, "cudaDeviceEnablePeerAccess", place);
}

CudaIpcHandle ipc_handle_of(CudaPlace place, void* memory) {
  activate(place);
  cudaIpcMemHandle_t made{};
  check_cuda(cudaIpcGetMemHandle(&made, memory), "cudaIpcGetMemHandle", place);
  CudaIpcHandle handle{};
  std::memcpy(handle.data(), &made, sizeof made);
  return handle;
}

OpenedMemory::OpenedMemory(CudaPlace place, const CudaIpcHandle& handle) {
  activate(place);
  cudaIpcMemHandle_t given{};
  std::memcpy(&given, handle.data(), sizeof given);
  void* memory = nullptr;
  check_cuda(cudaIpcOpenMemHandle(&memory, given, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle", place);
  memory_ = static_cast<std::byte*>(memory);
}

OpenedMemory::~OpenedMemory() {
  if (memory_ != nullptr) cudaIpcCloseMemHandle(memory_);
}

OpenedMemory::OpenedMemory(OpenedMemory&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}

bool trace_ranges_built() {
  return true;
}
ScopedRange::ScopedRange(const char* name) {
  nvtxRangePushA(name);
}
ScopedRange::~ScopedRange() {
  nvtxRangePop();
}

}  // namespace lockstep::core
