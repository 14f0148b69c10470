#include "core/device_cuda.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "core/cuda_call.h"
#include "core/cuda_stream.h"
#include "core/error.h"
#include "core/memory_pool.h"

namespace lockstep::core {
namespace {

std::string place_text(CudaPlace place) {
  return fmt::format("rank {}, CUDA device {}", place.rank, place.device);
}

// During its lifetime, this thread may make calls that a capture would forbid because they may wait: cudaMalloc queues
// nothing, so the graph does not need it (PyTorch's allocator also allocates memory during captures in this way).
class AnyCallInCaptures {
 public:
  explicit AnyCallInCaptures(CudaPlace place) {
    check_cuda(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode", place);
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
    const AnyCallInCaptures any(context_->place);
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, size_bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check_cuda(status, "cudaMalloc", context_->place);
    return memory;
  }
  void release(void* memory) override {
    if (context_->frees()) cudaFree(memory);
  }
  std::size_t free_bytes() override {
    context_->activate();
    const AnyCallInCaptures any(context_->place);
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo", context_->place);
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
        pool_(std::make_shared<MemoryPool>(std::make_unique<CudaRawMemory>(context_), place_text(context_->place))) {
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

  void* allocate(std::size_t size_bytes) override { return pool_->allocate(size_bytes); }
  void release(void* memory) override { pool_->release(memory); }
  void* allocate_on(Stream& stream, std::size_t size_bytes) override { return pool_->allocate_on(stream, size_bytes); }
  void release_on(Stream& stream, void* memory) override { pool_->release_on(stream, memory); }
  void* allocate_for_peers(std::size_t size_bytes) override { return pool_->allocate_alone(size_bytes); }
  std::size_t allocated_bytes() const override { return pool_->bytes().held; }
  std::size_t peak_bytes() const override { return pool_->bytes().peak_held; }
  std::size_t reserved_bytes() const override { return pool_->bytes().reserved; }
  std::size_t peak_reserved_bytes() const override { return pool_->bytes().peak_reserved; }
  void free_unused() override { pool_->free_unused(); }

  void* allocate_pinned(std::size_t size_bytes) override;
  void release_pinned(void* memory) override;

  void copy_to_device(void* to, const void* from, std::size_t size_bytes) override {
    staging().to_device(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), size_bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t size_bytes) override {
    staging().to_host(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), size_bytes);
  }
  void copy_on(Stream& stream, void* to, const void* from, std::size_t size_bytes) override;
  void zero_on(Stream& stream, void* memory, std::size_t size_bytes) override;

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

void* CudaDevice::allocate_pinned(std::size_t size_bytes) {
  context_->activate();
  void* memory = nullptr;
  const std::string call = fmt::format("cudaMallocHost of {} bytes", size_bytes);
  check_cuda(cudaMallocHost(&memory, std::max(size_bytes, std::size_t{1})), call.c_str(), context_->place);
  pinned_.insert(memory);
  return memory;
}

void CudaDevice::release_pinned(void* memory) {
  LOCKSTEP_CHECK(pinned_.erase(memory) == 1, "release of pinned memory that this device did not allocate, or twice");
  if (context_->frees()) check_cuda(cudaFreeHost(memory), "cudaFreeHost", context_->place);
}

void CudaDevice::copy_on(Stream& stream, void* to, const void* from, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  check_launch(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream.native())),
               "cudaMemcpyAsync", context_->place, stream);
}

void CudaDevice::zero_on(Stream& stream, void* memory, std::size_t size_bytes) {
  if (size_bytes == 0) return;
  check_launch(cudaMemsetAsync(memory, 0, size_bytes, static_cast<cudaStream_t>(stream.native())), "cudaMemsetAsync",
               context_->place, stream);
}

}  // namespace

namespace {

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
      CudaContext{.place = {.rank = rank, .device = index}, .timeout = timeout, .stuck = false});
  return std::make_unique<CudaDevice>(devices.at(static_cast<std::size_t>(index)), std::move(context));
}

}  // namespace lockstep::core
