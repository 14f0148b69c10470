// Products by cuBLASLt. Of the algorithms that its heuristic proposes for a shape, the fastest is kept: each is timed
// on the context's stream when the context first needs this shape, dtypes, finish and alignment of operands. While the
// stream is captured, nothing can be timed: the heuristic's first algorithm runs and is not kept.
//
// Sums are in f32: f32 factors are multiplied in f32 (CUBLAS_COMPUTE_32F), not in TF32.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/base/cuda_context.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

inline constexpr std::size_t kCublasltWorkspaceBytes = std::size_t{32} << 20;  // NVIDIA's recommendation for Hopper

// Belongs to a context: cuda.kept<CublasltGemm>().
class CublasltGemm {
 public:
  explicit CublasltGemm(CudaContext& cuda);
  ~CublasltGemm();
  CublasltGemm(const CublasltGemm&) = delete;
  CublasltGemm& operator=(const CublasltGemm&) = delete;

  // Queues the product with its finish. Returns false and queues nothing if cuBLASLt has no algorithm for it.
  // `workspace` is kCublasltWorkspaceBytes of device memory. The first call for a product runs it several times.
  bool run(const Product& product, void* workspace);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::kernels
