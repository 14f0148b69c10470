// The resources that kernels on a CUDA device need besides their arguments.
#pragma once

#include <cstddef>
#include <memory>
#include <typeindex>

#include "core/cuda_call.h"
#include "core/device.h"

namespace lockstep::kernels {

// A stream in which a rank's kernels run in order, and device memory for partial results. To be used by one thread at a
// time, whose current CUDA device is the context's, as it is in the thread that made the device. The device and the
// stream outlive it.
//
// Graphs: once a kernel ran with the same arguments, running it again allocates nothing and waits for nothing, so that
// it can be captured from the stream: run what is to be captured once, then capture it. A graph may be replayed as
// long as the context lives, and only in its stream or where nothing else runs that uses the workspace.
class CudaContext {
 public:
  // `rank` is for the text of errors; -1 where there are no ranks.
  CudaContext(core::Device& device, core::Stream& stream, int rank = -1);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  core::Device& device() const;
  core::CudaPlace place() const;  // for core::check_cuda
  core::Stream& queue() const;
  void* stream() const;  // the same, as cudaStream_t
  int num_multiprocessors() const;
  // 256-byte aligned memory for the time of one run(): a kernel asks once, and its content is lost at the next call.
  // Growing at least doubles it and keeps the old memory, which graphs may refer to, until the context goes; it throws
  // Error(cuda) while the stream is captured.
  void* workspace(std::size_t size_bytes);
  // State that a kernel family keeps for the life of the context, such as GEMM's choice of algorithms: one object of
  // each type, made by T(CudaContext&) on first use.
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

// Queues a copy between two places of the device's memory.
void copy_on_device(CudaContext& cuda, void* to, const void* from, std::size_t size_bytes);

}  // namespace lockstep::kernels
