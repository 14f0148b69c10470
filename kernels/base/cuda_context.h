// What kernels on a CUDA device need beside their arguments.
#pragma once

#include <cstddef>
#include <memory>
#include <typeindex>

#include "core/device.h"

namespace lockstep::kernels {

// A stream in which a rank's kernels run in order, a cuBLASLt handle, and device memory for partial results, which
// grows to the most that was asked for. To be used by one thread at a time; the device and the stream outlive it.
class CudaContext {
 public:
  CudaContext(core::Device& device, core::Stream& stream);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  core::Device& device() const;
  void* stream() const;    // cudaStream_t
  void* cublaslt() const;  // cublasLtHandle_t, made on first use
  int num_multiprocessors() const;
  // 256-byte aligned memory for the time of one kernel; valid until the next call. Growing waits for the stream.
  void* workspace(std::size_t size_bytes);
  // What a kernel family keeps for the life of the context, such as GEMM's choice of algorithms: one object of each
  // type, made by T(CudaContext&) on first use.
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

}  // namespace lockstep::kernels
