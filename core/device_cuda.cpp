#include "core/device_cuda.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_set>
#include <utility>

#include "core/cuda_call.h"
#include "core/cuda_stream.h"
#include "core/error.h"
#include "core/memory_pool.h"

namespace lockstep::core {

namespace {

std::string caller_text(CudaCaller caller) {
  return fmt::format("rank {}, CUDA device {}", caller.rank, caller.device);
}

// During its lifetime, this thread may make calls that a capture would forbid because they may wait: cudaMalloc queues
// nothing, so the graph does not need it (PyTorch's allocator also allocates memory during captures in this way).
class AnyCallInCaptures {
 public:
  explicit AnyCallInCaptures(CudaCaller caller) {
    check_cuda(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode", caller);
  }
  ~AnyCallInCaptures() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  AnyCallInCaptures(const AnyCallInCaptures&) = delete;
  AnyCallInCaptures& operator=(const AnyCallInCaptures&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // after the exchange: the previous mode
};

// The calls that the memory pool needs: cudaMalloc and events. If the device is stuck, nothing is freed.
class CudaRawMemory final : public RawMemory {
 public:
  explicit CudaRawMemory(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}

  void* allocate(std::size_t size_bytes) override {
    context_->activate();
    const AnyCallInCaptures any(context_->caller);
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, size_bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check_cuda(status, "cudaMalloc", context_->caller);
    return memory;
  }
  void release(void* memory) override {
    if (context_->frees()) cudaFree(memory);
  }
  std::size_t free_bytes() override {
    context_->activate();
    const AnyCallInCaptures any(context_->caller);
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo", context_->caller);
    return free_bytes;
  }
  std::unique_ptr<Event> make_event() override { return make_cuda_event(context_, EventTimes::no); }

 private:
  std::shared_ptr<CudaContext> context_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(CudaDeviceInfo info, std::shared_ptr<CudaContext> context)
      : info_(std::move(info)),
        context_(std::move(context)),
        pool_(std::make_shared<MemoryPool>(std::make_unique<CudaRawMemory>(context_), caller_text(context_->caller))) {
    context_->activate();
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override {
    if (!context_->frees()) return;
    for (void* memory : pinned_) cudaFreeHost(memory);
  }

  std::string name() const override { return info_.name; }
  int index() const override { return info_.index; }
  bool is_host_memory() const override { return false; }
  // No driver has a function of this name: only the stand-in answers to it (testing/cuda_stand_in).
  bool computes() const override {
    context_->activate();
    void* function = nullptr;
    cudaDriverEntryPointQueryResult answer{};
    const cudaError_t status = cudaGetDriverEntryPointByVersion("lockstep_computes_nothing", &function, CUDART_VERSION,
                                                                cudaEnableDefault, &answer);
    cudaGetLastError();
    return status != cudaSuccess || answer != cudaDriverEntryPointSuccess;
  }

  void* allocate(std::size_t size_bytes) override { return pool_->allocate(size_bytes); }
  void release(void* memory) override { pool_->release(memory); }
  void* allocate_on(Stream& stream, std::size_t size_bytes) override { return pool_->allocate_on(stream, size_bytes); }
  void release_on(Stream& stream, void* memory) override { pool_->release_on(stream, memory); }
  void* allocate_for_peers(std::size_t size_bytes) override { return pool_->allocate_alone(size_bytes); }
  std::size_t allocated_bytes() const override { return pool_->bytes().held; }
  std::size_t peak_bytes() const override { return pool_->bytes().peak_held; }
  std::size_t reserved_bytes() const override { return pool_->bytes().reserved; }
  void free_unused() override { pool_->free_unused(); }

  void* allocate_pinned(std::size_t size_bytes) override {
    context_->activate();
    void* memory = nullptr;
    const std::string call = fmt::format("cudaMallocHost of {} bytes", size_bytes);
    check_cuda(cudaMallocHost(&memory, std::max(size_bytes, std::size_t{1})), call.c_str(), context_->caller);
    pinned_.insert(memory);
    return memory;
  }

  void release_pinned(void* memory) override {
    LOCKSTEP_CHECK(pinned_.erase(memory) == 1, "release of pinned memory that this device did not allocate, or twice");
    if (context_->frees()) check_cuda(cudaFreeHost(memory), "cudaFreeHost", context_->caller);
  }

  void copy_to_device(void* to, const void* from, std::size_t size_bytes) override {
    staging().to_device(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), size_bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t size_bytes) override {
    staging().to_host(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), size_bytes);
  }
  void copy_on(Stream& stream, void* to, const void* from, std::size_t size_bytes) override {
    if (size_bytes == 0) return;
    check_launch(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream.native())),
                 "cudaMemcpyAsync", context_->caller, stream);
  }

  void zero_on(Stream& stream, void* memory, std::size_t size_bytes) override {
    if (size_bytes == 0) return;
    check_launch(cudaMemsetAsync(memory, 0, size_bytes, static_cast<cudaStream_t>(stream.native())), "cudaMemsetAsync",
                 context_->caller, stream);
  }

  std::unique_ptr<Stream> make_stream() override { return make_cuda_stream(context_, pool_); }
  std::unique_ptr<Stream> make_urgent_stream() { return make_cuda_stream(context_, pool_, StreamPriority::highest); }
  std::unique_ptr<Stream> make_null_stream() { return default_cuda_stream(context_, pool_); }
  std::unique_ptr<Event> make_event() override { return make_cuda_event(context_); }

 private:
  // Made at the first copy: a rank that never copies does not pin memory.
  CudaStaging& staging() {
    context_->activate();
    if (!staging_) staging_ = std::make_unique<CudaStaging>(context_);
    return *staging_;
  }

  CudaDeviceInfo info_;
  std::shared_ptr<CudaContext> context_;
  std::shared_ptr<MemoryPool> pool_;  // destroyed last: its streams and graphs use it
  std::unique_ptr<CudaStaging> staging_;
  std::unordered_set<void*> pinned_;
};

CudaDevice& cuda_device(Device& device) {
  auto* const cuda = dynamic_cast<CudaDevice*>(&device);
  LOCKSTEP_CHECK(cuda != nullptr, "urgent and NULL streams exist only on CUDA devices");
  return *cuda;
}

}  // namespace

std::unique_ptr<Stream> make_urgent_stream(Device& device) {
  return cuda_device(device).make_urgent_stream();
}

std::unique_ptr<Stream> make_null_stream(Device& device) {
  return cuda_device(device).make_null_stream();
}

std::unique_ptr<Device> make_cuda_device(int index, int rank, std::chrono::nanoseconds timeout) {
  if (const auto why = why_no_cuda()) throw Error(Failure::cuda, fmt::format("rank {}: {}", rank, *why));
  const std::vector<CudaDeviceInfo> devices = cuda_devices();
  const int count = static_cast<int>(devices.size());
  if (index < 0 || index >= count) {
    throw usage_error(
        fmt::format("rank {}: CUDA device {} does not exist; there are {} (0 to {})", rank, index, count, count - 1));
  }
  auto context = std::make_shared<CudaContext>(
      CudaContext{.caller = {.rank = rank, .device = index}, .timeout = timeout, .stuck = false});
  return std::make_unique<CudaDevice>(devices.at(static_cast<std::size_t>(index)), std::move(context));
}

// Lists the CUDA devices, or the reason why there are none.

namespace {

double clock_mhz(int index) {
  int khz = 0;
  const bool is_known = cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, index) == cudaSuccess;
  cudaGetLastError();
  return is_known ? khz / 1e3 : 0;
}

std::optional<bool> shared_by_mps(int index) {
  int shared = 0;
  const bool is_known = cudaDeviceGetAttribute(&shared, cudaDevAttrMpsEnabled, index) == cudaSuccess;
  cudaGetLastError();
  return is_known ? std::optional(shared != 0) : std::nullopt;
}

// Version 13020 is 13.2.
std::string version_text(int version) {
  return version == 0 ? "" : fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

CudaDeviceInfo info_of(int index) {
  const CudaCaller caller{.rank = -1, .device = index};
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties", caller);
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
// run in sequence. The driver makes 8 connections by default and 32 at most (CUDA Programming Guide, "CUDA Environment
// Variables"). All kernels are loaded at once, unless choose_module_loading() has decided otherwise
// (core/module_loading.h). CUDA reads these variables when it starts, so every program of ours must list GPUs here
// before it calls anything else of CUDA. Variables that the user has set are kept.
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
  const CudaCaller caller{.rank = -1, .device = index};
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  check_cuda(cudaSetDevice(index), "cudaSetDevice", caller);
  check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo", caller);
  return free_bytes;
}

namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(CudaIpcHandle));

void activate(CudaCaller caller) {
  check_cuda(cudaSetDevice(caller.device), "cudaSetDevice", caller);
}

}  // namespace

void allow_peer_access(CudaCaller caller, int peer) {
  if (peer == caller.device) return;
  activate(caller);
  const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {  // by another rank of this process
    cudaGetLastError();
    return;
  }
  check_cuda(status, "cudaDeviceEnablePeerAccess", caller);
}

CudaIpcHandle ipc_handle_of(CudaCaller caller, void* memory) {
  activate(caller);
  cudaIpcMemHandle_t cuda_handle{};
  check_cuda(cudaIpcGetMemHandle(&cuda_handle, memory), "cudaIpcGetMemHandle", caller);
  CudaIpcHandle handle{};
  std::memcpy(handle.data(), &cuda_handle, sizeof cuda_handle);
  return handle;
}

OpenedMemory::OpenedMemory(CudaCaller caller, const CudaIpcHandle& handle) {
  activate(caller);
  cudaIpcMemHandle_t given{};
  std::memcpy(&given, handle.data(), sizeof given);
  void* memory = nullptr;
  check_cuda(cudaIpcOpenMemHandle(&memory, given, cudaIpcMemLazyEnablePeerAccess), "cudaIpcOpenMemHandle", caller);
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
