// Products of matrices on CUDA: cuBLASLt and our own kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/base/cuda_context.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

// How a product of row-major arrays is described to cuBLASLt, whose arrays are column-major; plain integers, so that
// any machine can test it. Row-major memory read by columns is the transpose, and c^T = b^T a^T: b is cuBLASLt's first
// factor and a its second.

// Element (r, c) of matrix number i is at i * batch_stride + c * leading + r.
struct ColumnMatrix {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t leading;
  std::int64_t batch_stride;
  bool transposed;  // the product uses its transpose
};

struct ColumnProduct {
  ColumnMatrix first;   // b
  ColumnMatrix second;  // a
  ColumnMatrix result;  // c
};
ColumnProduct in_columns(const Product& product);

// Returns the largest power of two, at most 256, that divides the address.
std::uint32_t alignment_bytes(const void* address);

// Returns which of several algorithms to keep, given their times in the heuristic's order of preference: the first that
// is within 2 % of the fastest, so that noise does not decide between equals. Infinity means that it failed. -1: all
// failed.
int choose_algorithm(std::span<const double> times_us);

// Products by cuBLASLt. Of the algorithms that its heuristic proposes for a shape, the fastest is kept: each is timed
// on the context's stream when the context first needs this shape, dtypes, finish and alignment of operands. While the
// stream is captured, and for products whose lengths vary (Product::varies), nothing is timed: the heuristic's first
// algorithm runs and is not kept.
//
// Sums are in f32: f32 factors are multiplied in f32 (CUBLAS_COMPUTE_32F), not in TF32.

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

// Products on CUDA, and our own kernels for everything that cuBLASLt cannot do with a shape, dtype or alignment, and
// for the gradient of a bias. All are queued on the context's stream, and deterministic.

// Uses cuBLASLt or the kernels below. Uses the context's workspace.
void queue_product(const Product& product, CudaContext& cuda);

// c = alpha sum, or c += sum, for any strides and alignment: correct rather than fast.
void queue_plain_product(const Product& product, CudaContext& cuda);

// c = finish(sums), where `sums` is [m, n] packed f32 and may be c. For finishes with a bias or a GELU, not batched.
void queue_finish(const float* sums, const Product& product, CudaContext& cuda);

// out[column] += sum over rows of x[row, column], where x has dense rows. `partial_sums` is device memory of
// column_sums_bytes(). Partial sums are added in row order.
std::size_t column_sums_bytes(std::int64_t rows, std::int64_t columns, const CudaContext& cuda);
void queue_column_sums(const Factor& x, std::int64_t rows, std::int64_t columns, float* out, void* partial_sums,
                       CudaContext& cuda);

}  // namespace lockstep::kernels
