#include "core/device_cuda.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/cuda_call.h"
#include "core/cuda_staging.h"
#include "core/cuda_stream.h"
#include "core/error.h"
#include "core/memory_ledger.h"

namespace lockstep::core {
namespace {

class CudaDevice final : public Device {
 public:
  CudaDevice(CudaDeviceInfo info, std::shared_ptr<CudaContext> context)
      : info_(std::move(info)), context_(std::move(context)) {
    context_->activate();
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;
  ~CudaDevice() override {
    if (context_->stuck) return;
    cudaSetDevice(info_.index);
    for (const auto& [memory, size_bytes] : ledger_.blocks()) cudaFree(memory);
  }

  std::string name() const override { return info_.name; }
  int index() const override { return info_.index; }
  bool is_host_memory() const override { return false; }

  void* allocate(std::size_t size_bytes) override;
  void release(void* memory) override {
    ledger_.remove(memory);
    if (!context_->stuck) check_cuda(cudaFree(memory), "cudaFree", context_->place);
  }
  std::size_t allocated_bytes() const override { return ledger_.allocated_bytes(); }
  std::size_t peak_bytes() const override { return ledger_.peak_bytes(); }

  void copy_to_device(void* to, const void* from, std::size_t size_bytes) override {
    staging().to_device(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), size_bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t size_bytes) override {
    staging().to_host(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), size_bytes);
  }

  std::unique_ptr<Stream> make_stream() override { return make_cuda_stream(context_); }
  std::unique_ptr<Event> make_event() override { return make_cuda_event(context_); }

 private:
  // Made at the first copy: a rank that never copies pins no memory.
  CudaStaging& staging() {
    context_->activate();
    if (!staging_) staging_ = std::make_unique<CudaStaging>(context_);
    return *staging_;
  }

  CudaDeviceInfo info_;
  std::shared_ptr<CudaContext> context_;
  std::unique_ptr<CudaStaging> staging_;
  MemoryLedger ledger_;
};

void* CudaDevice::allocate(std::size_t size_bytes) {
  context_->activate();
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, std::max(size_bytes, std::size_t{1}));  // of 0 it would return null
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo", context_->place);
    throw Error(Failure::cuda,
                fmt::format("cudaMalloc of {} bytes failed on rank {}, CUDA device {}: {} of {} are free", size_bytes,
                            context_->place.rank, info_.index, free_bytes, total_bytes));
  }
  check_cuda(status, "cudaMalloc", context_->place);
  ledger_.add(memory, size_bytes);
  return memory;
}

}  // namespace

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
