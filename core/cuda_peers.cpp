#include "core/cuda_peers.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <utility>

namespace lockstep::core {
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

}  // namespace lockstep::core
