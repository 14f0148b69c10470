// Products by cuBLASLt. Of the algorithms that its heuristic names for a shape, the fastest is kept: each is timed on
// the context's stream when a context first meets the shape, its dtypes, its finish and the alignment of its operands.
// While the stream is captured nothing can be timed, and the heuristic's first runs; it is not kept.
//
// Sums are in f32: factors of f32 are multiplied in f32 (CUBLAS_COMPUTE_32F), not in TF32.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/base/cuda_context.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

inline constexpr std::size_t kCublasltWorkspaceBytes = std::size_t{32} << 20;  // what NVIDIA advises for Hopper

// Belongs to a context, which keeps it: cuda.kept<CublasltGemm>().
class CublasltGemm {
 public:
  explicit CublasltGemm(CudaContext& cuda);
  ~CublasltGemm();
  CublasltGemm(const CublasltGemm&) = delete;
  CublasltGemm& operator=(const CublasltGemm&) = delete;

  // Queues the product with its finish; false, and nothing is queued, if cuBLASLt has no algorithm for it. `workspace`:
  // kCublasltWorkspaceBytes of device memory. A product that is met first runs several times.
  bool run(const Product& product, void* workspace);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::kernels
