#include <atomic>
#include <new>

#include "core/device.h"
#include "core/error.h"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_sync.cuh"
#include "kernels/base/stream_gate.h"

namespace lockstep::kernels {

// Counters of closings, which only grow.
struct StreamGate::Words {
  std::uint64_t opened = 0;         // written by the host, polled by the kernel
  std::uint64_t lost_patience = 0;  // written by the kernel
};

namespace {

__global__ void gate_kernel(std::uint64_t* opened, std::uint64_t* lost_patience, std::uint64_t turn,
                            std::uint64_t patience_ns) {
  const std::uint64_t since = device_nanoseconds();
  while (load_relaxed(opened) < turn) {
    if (device_nanoseconds() - since > patience_ns) {
      store_release(lost_patience, turn, Reach::system);
      return;
    }
    give_way();
  }
}

}  // namespace

StreamGate::StreamGate(const CudaContext& cuda, std::chrono::nanoseconds patience)
    : cuda_(cuda),
      patience_ns_(static_cast<std::uint64_t>(patience.count())),
      words_(new (cuda.device().allocate_pinned(sizeof(Words))) Words) {}

StreamGate::~StreamGate() {
  try {
    open();
    cuda_.device().release_pinned(words_);
  } catch (const core::Error&) {
    // The device failed before; its memory is freed with the process.
  }
}

// Does not use launch(), which may wait for what it has launched.
void StreamGate::close() {
  ++turn_;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1);
  config.blockDim = dim3(1);
  config.stream = stream_of(cuda_);
  core::check_cuda(
      cudaLaunchKernelEx(&config, gate_kernel, &words_->opened, &words_->lost_patience, turn_, patience_ns_),
      "the launch of a stream gate", cuda_.place());
}

void StreamGate::open() {
  std::atomic_ref(words_->opened).store(turn_, std::memory_order_release);
}

bool StreamGate::lost_patience() const {
  return std::atomic_ref(words_->lost_patience).load(std::memory_order_acquire) == turn_ && turn_ > 0;
}

}  // namespace lockstep::kernels
