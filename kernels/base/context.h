// Where a kernel runs: the seam between callers, which are the same on every device, and the implementations.
#pragma once

#include "core/error.h"
#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"

namespace lockstep::kernels {

class CudaContext;  // cuda_context.h: a stream, cuBLASLt, and a workspace

// Refers to a thread pool or a CUDA context; owns nothing. For one thread at a time.
class Context {
 public:
  explicit Context(ThreadPool& pool) : pool_(&pool) {}
  explicit Context(CudaContext& cuda) : cuda_(&cuda) {}
  bool on_cpu() const { return pool_ != nullptr; }
  ThreadPool& pool() const { return *pool_; }
  CudaContext& cuda() const { return *cuda_; }

 private:
  ThreadPool* pool_ = nullptr;
  CudaContext* cuda_ = nullptr;
};

// Checks the arguments and runs the kernel they name: complete on return on the CPU, queued on the stream on CUDA.
// Throws a usage Error that names the wrong argument; on CUDA, an Error with the call that failed.
template <class Args>
void run(const Args& args, const Context& where) {
  check(args);
  if (where.on_cpu()) {
    run_cpu(args, where.pool());
  } else {
    run_cuda(args, where.cuda());
  }
}

}  // namespace lockstep::kernels
