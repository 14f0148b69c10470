// Where a kernel runs: the one seam between callers, who are the same on every device, and the implementations.
#pragma once

#include "core/error.h"
#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"

namespace lockstep::kernels {

class CudaContext;  // cuda_context.h: a stream, cuBLASLt, and a workspace

// Refers to either; owns nothing. To be used by one thread at a time.
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

// Checks the arguments and runs the kernel they name: done when it returns on the CPU, queued on the stream on CUDA.
// Throws a usage Error that names the argument that is wrong; on CUDA an Error with the call that failed.
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
