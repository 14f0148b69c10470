// Functions of CUDA's runtime: devices, memory, and errors.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "testing/cuda_stand_in/call.h"
#include "testing/cuda_stand_in/gpu.h"
#include "testing/cuda_stand_in/refused.h"
#include "testing/cuda_stand_in/runtime.h"

using namespace lockstep::cuda_stand_in;  // NOLINT(google-build-using-namespace): these functions are CUDA's

namespace {

template <class Body>
cudaError_t guarded(Body body) {
  return lockstep::cuda_stand_in::guarded<cudaError_t>(body);
}

std::uintptr_t address(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void check_device(const Runtime& runtime, int device) {
  if (device < 0 || device >= runtime.num_devices()) throw Refused(cudaErrorInvalidDevice, "no such device");
}

int value_of(cudaDeviceAttr attribute, const DescribedGpu& described) {
  switch (attribute) {
    case cudaDevAttrClockRate:
      return gpu::kClockKhz;
    case cudaDevAttrClusterLaunch:
      return described.has_clusters ? 1 : 0;
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrConcurrentKernels:
      return 1;
    case cudaDevAttrMpsEnabled:
      return 0;
    case cudaDevAttrComputeCapabilityMajor:
      return gpu::kComputeMajor;
    case cudaDevAttrComputeCapabilityMinor:
      return gpu::kComputeMinor;
    case cudaDevAttrMultiProcessorCount:
      return described.multiprocessors;
    case cudaDevAttrMaxThreadsPerBlock:
      return gpu::kBlockThreads;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return gpu::kMultiprocessorThreads;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      return gpu::kMultiprocessorBlocks;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return gpu::kRegisters;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return static_cast<int>(gpu::kSharedBytes);
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return static_cast<int>(gpu::kOptInSharedBytes);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return static_cast<int>(gpu::kMultiprocessorSharedBytes);
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return static_cast<int>(gpu::kReservedSharedBytes);
    case cudaDevAttrL2CacheSize:
      return static_cast<int>(gpu::kL2Bytes);
    case cudaDevAttrWarpSize:
      return gpu::kWarpThreads;
    default:
      throw Refused(cudaErrorInvalidValue, "the stand-in does not know this attribute");
  }
}

cudaDeviceProp properties_of(int device, const DescribedGpu& described) {
  cudaDeviceProp its{};
  std::strncpy(its.name, gpu::kName, sizeof its.name - 1);
  its.uuid.bytes[0] = 'S';
  its.uuid.bytes[15] = static_cast<char>(device);
  its.totalGlobalMem = gpu::kMemoryBytes;
  its.sharedMemPerBlock = gpu::kSharedBytes;
  its.sharedMemPerBlockOptin = gpu::kOptInSharedBytes;
  its.sharedMemPerMultiprocessor = gpu::kMultiprocessorSharedBytes;
  its.reservedSharedMemPerBlock = gpu::kReservedSharedBytes;
  its.regsPerBlock = its.regsPerMultiprocessor = gpu::kRegisters;
  its.warpSize = gpu::kWarpThreads;
  its.maxThreadsPerBlock = gpu::kBlockThreads;
  its.maxThreadsPerMultiProcessor = gpu::kMultiprocessorThreads;
  its.maxBlocksPerMultiProcessor = gpu::kMultiprocessorBlocks;
  its.major = gpu::kComputeMajor;
  its.minor = gpu::kComputeMinor;
  its.multiProcessorCount = described.multiprocessors;
  its.l2CacheSize = static_cast<int>(gpu::kL2Bytes);
  its.pciBusID = 1 + device;
  its.clusterLaunch = described.has_clusters ? 1 : 0;
  its.concurrentKernels = its.cooperativeLaunch = its.unifiedAddressing = 1;
  return its;
}

// Pageable memory is read before the call returns, and written before it returns.
void copy(Runtime& runtime, std::unique_lock<std::mutex>& lock, void* to, const void* from, std::size_t size_bytes,
          cudaStream_t on) {
  Stream* const stream = runtime.streams.find(on, this_thread().device);
  if (stream == nullptr) throw Refused(cudaErrorInvalidResourceHandle, "no such stream");
  if (size_bytes == 0) return;
  runtime.memory.check(address(to), size_bytes, "the destination of a copy");
  runtime.memory.check(address(from), size_bytes, "the source of a copy");
  CopyWork work{.to = address(to), .from = address(from), .size_bytes = size_bytes};
  const bool captured = stream->capture != nullptr;
  if (!captured && !runtime.memory.at(work.from)) {
    const auto* const bytes = static_cast<const std::byte*>(from);
    work.staged = std::make_shared<const std::vector<std::byte>>(bytes, bytes + size_bytes);
  }
  const bool waits = !captured && !runtime.memory.at(work.to);
  runtime.streams.add(*stream, std::move(work));
  runtime.advance();
  if (waits) runtime.wait(lock, [&] { return stream->idle(); });
}

void fill(Runtime& runtime, void* to, int value, std::size_t size_bytes, cudaStream_t on) {
  Stream* const stream = runtime.streams.find(on, this_thread().device);
  if (stream == nullptr) throw Refused(cudaErrorInvalidResourceHandle, "no such stream");
  if (size_bytes == 0) return;
  runtime.memory.check(address(to), size_bytes, "the destination of a fill");
  if (!runtime.memory.at(address(to))) throw Refused(cudaErrorInvalidValue, "a fill of memory that is not CUDA's");
  runtime.streams.add(*stream, FillWork{.to = address(to), .value = value, .size_bytes = size_bytes});
  runtime.advance();
}

cudaError_t allocate(void** made, std::size_t size_bytes, MemoryKind kind, const char* call) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    check_may_wait(runtime, call);
    *made = size_bytes == 0 ? nullptr : pointer(runtime.memory.allocate(size_bytes, kind));
    runtime.advance();  // the executor hears of it
  });
}

// Waits for the device, as CUDA does.
cudaError_t release(void* memory, MemoryKind kind, const char* call) {
  return guarded([&](Runtime& runtime, auto& lock) {
    check_may_wait(runtime, call);
    if (memory == nullptr) return;
    runtime.wait(lock, [&] { return runtime.streams.idle(); });
    runtime.memory.release(address(memory), kind);
    runtime.advance();
  });
}

}  // namespace

cudaError_t cudaDriverGetVersion(int* version) {
  *version = gpu::kDriverVersion;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = gpu::kRuntimeVersion;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) { *count = runtime.num_devices(); });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    check_device(runtime, device);
    *properties = properties_of(device, runtime.described);
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    check_device(runtime, device);
    *value = value_of(attribute, runtime.described);
  });
}
cudaError_t cudaSetDevice(int device) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    check_device(runtime, device);
    this_thread().device = device;
  });
}
cudaError_t cudaGetDevice(int* device) {
  *device = this_thread().device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetLimit(std::size_t* value, cudaLimit limit) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    if (limit != cudaLimitStackSize)
      throw Refused(cudaErrorUnsupportedLimit, "the stand-in knows the stack's limit only");
    *value = runtime.stack_bytes;
  });
}
cudaError_t cudaDeviceSetLimit(cudaLimit limit, std::size_t value) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    if (limit != cudaLimitStackSize)
      throw Refused(cudaErrorUnsupportedLimit, "the stand-in knows the stack's limit only");
    runtime.stack_bytes = value;
  });
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned /*flags*/) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    check_device(runtime, peer);
    const int mine = this_thread().device;
    if (peer == mine) throw Refused(cudaErrorInvalidDevice, "a device is no peer of itself");
    if (!runtime.peers.insert({mine, peer}).second) {
      throw Refused(cudaErrorPeerAccessAlreadyEnabled, "access to this peer is allowed already");
    }
  });
}
cudaError_t cudaDeviceSynchronize() {
  return guarded([](Runtime& runtime, auto& lock) {
    check_may_wait(runtime, "cudaDeviceSynchronize");
    runtime.wait(lock, [&] { return runtime.streams.idle(); });
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    *free_bytes = runtime.memory.free_bytes();
    *total_bytes = gpu::kMemoryBytes;
  });
}
cudaError_t cudaMalloc(void** made, std::size_t size_bytes) {
  return allocate(made, size_bytes, MemoryKind::device, "cudaMalloc");
}
cudaError_t cudaMallocHost(void** made, std::size_t size_bytes) {
  return allocate(made, size_bytes, MemoryKind::pinned, "cudaMallocHost");
}
cudaError_t cudaFree(void* memory) {
  return release(memory, MemoryKind::device, "cudaFree");
}
cudaError_t cudaFreeHost(void* memory) {
  return release(memory, MemoryKind::pinned, "cudaFreeHost");
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    const DeviceMemory::Handle its = runtime.memory.handle_of(address(memory));
    static_assert(sizeof its == sizeof *handle);
    std::memcpy(handle, its.data(), sizeof its);
  });
}
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned /*flags*/) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    DeviceMemory::Handle its{};
    std::memcpy(its.data(), &handle, sizeof its);
    *memory = pointer(runtime.memory.open(its));
    runtime.advance();
  });
}
cudaError_t cudaIpcCloseMemHandle(void* memory) {
  return release(memory, MemoryKind::opened, "cudaIpcCloseMemHandle");
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
  return guarded([&](Runtime& runtime, auto& lock) { copy(runtime, lock, to, from, size_bytes, stream); });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind /*kind*/) {
  return guarded([&](Runtime& runtime, auto& lock) {
    check_may_wait(runtime, "cudaMemcpy");
    copy(runtime, lock, to, from, size_bytes, nullptr);
    Stream* const stream = runtime.streams.find(nullptr, this_thread().device);
    runtime.wait(lock, [&] { return stream->idle(); });
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t size_bytes, cudaStream_t stream) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) { fill(runtime, to, value, size_bytes, stream); });
}

cudaError_t cudaGetLastError() {
  return static_cast<cudaError_t>(std::exchange(this_thread().last_error, 0));
}
cudaError_t cudaPeekAtLastError() {
  return static_cast<cudaError_t>(this_thread().last_error);
}

namespace {

struct ErrorText {
  cudaError_t code;
  const char* name;
  const char* text;
};
#define LOCKSTEP_ERROR(code, text) \
  ErrorText {                      \
    code, #code, text              \
  }
constexpr std::array kErrors{
    LOCKSTEP_ERROR(cudaSuccess, "no error"),
    LOCKSTEP_ERROR(cudaErrorInvalidValue, "invalid argument"),
    LOCKSTEP_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    LOCKSTEP_ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    LOCKSTEP_ERROR(cudaErrorInvalidDeviceFunction, "invalid device function"),
    LOCKSTEP_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    LOCKSTEP_ERROR(cudaErrorDeviceUninitialized, "invalid device context"),
    LOCKSTEP_ERROR(cudaErrorMapBufferObjectFailed, "mapping of buffer object failed"),
    LOCKSTEP_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    LOCKSTEP_ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    LOCKSTEP_ERROR(cudaErrorUnsupportedLimit, "limit is not supported on this architecture"),
    LOCKSTEP_ERROR(cudaErrorNotReady, "device not ready"),
    LOCKSTEP_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    LOCKSTEP_ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    LOCKSTEP_ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    LOCKSTEP_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    LOCKSTEP_ERROR(cudaErrorCooperativeLaunchTooLarge, "too many blocks in cooperative launch"),
    LOCKSTEP_ERROR(cudaErrorInvalidClusterSize, "Invalid cluster size"),
    LOCKSTEP_ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    LOCKSTEP_ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    LOCKSTEP_ERROR(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    LOCKSTEP_ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    LOCKSTEP_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    LOCKSTEP_ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    LOCKSTEP_ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
};
#undef LOCKSTEP_ERROR

const ErrorText& known(cudaError_t code) {
  static constexpr ErrorText kUnknown{cudaErrorUnknown, "unrecognized error code", "unrecognized error code"};
  const auto* const found =
      std::find_if(kErrors.begin(), kErrors.end(), [&](const ErrorText& error) { return error.code == code; });
  return found == kErrors.end() ? kUnknown : *found;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t code) {
  return known(code).name;
}
const char* cudaGetErrorString(cudaError_t code) {
  return known(code).text;
}
