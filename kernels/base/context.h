// Where a kernel runs: the seam between callers, which are the same on every device, and the implementations.
#pragma once

#include <optional>
#include <string>

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

// Why kernels by wgmma, whose code for 9.0a runs on no other compute capability, cannot be had on a device of this one
// (90 for 9.0); nothing if they can. `flag` is theirs, "attention", and `others` are what runs everywhere, "mma".
inline std::optional<std::string> wgmma_refusal(const std::string& flag, int capability, const std::string& others) {
  constexpr int kHopper = 90;
  if (capability == kHopper) return std::nullopt;
  return flag + " wgmma: the device has compute capability " + std::to_string(capability / 10) + "." +
         std::to_string(capability % 10) + "; allowed: 9.0, or " + others;
}

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
