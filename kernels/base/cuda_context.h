// The resources that kernels on a CUDA device need besides their arguments.
#pragma once

#include <cstddef>
#include <memory>
#include <typeindex>

#include "core/cuda_call.h"
#include "core/device.h"

namespace lockstep::kernels {

// A stream on which a rank's kernels run in order, and device memory for partial results. For one thread at a time,
// whose current CUDA device must be the context's, as in the thread that made the device. The device and the stream
// must outlive it.
//
// Graphs: after a kernel has run with the same arguments, running it again neither allocates nor waits, so that it can
// be captured from the stream: run the work once, then capture it. A graph may be replayed during the context's
// lifetime, only on its stream or while nothing else uses the workspace.
class CudaContext {
 public:
  // `rank` is for the text of errors; -1 if there are no ranks.
  CudaContext(core::Device& device, core::Stream& stream, int rank = -1);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  core::Device& device() const;
  core::CudaCaller place() const;  // for core::check_cuda
  core::Stream& queue() const;
  void* stream() const;  // the same stream as cudaStream_t
  int num_multiprocessors() const;
  int compute_capability() const;  // 90 for 9.0
  // Returns the largest portable cluster size in blocks: 8 on devices that have thread-block clusters, 1 on others.
  int most_cluster_blocks() const;
  // Returns 256-byte aligned memory for the duration of one run(): a kernel calls this once, and the content is lost at
  // the next call. Growing at least doubles it and keeps the old memory until the context is destroyed, because graphs
  // may refer to it. Throws Error(cuda) if it would have to grow while the stream is captured.
  void* workspace(std::size_t size_bytes);
  // State that a kernel family keeps for the lifetime of the context, such as GEMM's choice of algorithms: one object
  // of each type, made by T(CudaContext&) on first use.
  template <class T>
  T& kept() {
    std::shared_ptr<void>& slot = kept_slot(typeid(T));
    if (!slot) slot = std::make_shared<T>(*this);
    return *static_cast<T*>(slot.get());
  }

 private:
  std::shared_ptr<void>& kept_slot(std::type_index type);
  struct State;
  std::unique_ptr<State> state_;
};

// Queues a copy within the device's memory.
void copy_on_device(CudaContext& cuda, void* to, const void* from, std::size_t size_bytes);

}  // namespace lockstep::kernels
