// Products on CUDA, and kernels of our own around cuBLASLt's: what it cannot do for a shape, dtype or alignment, and
// the gradient of a bias. All are queued on the context's stream, and deterministic.
#pragma once

#include <cstddef>

#include "kernels/base/cuda_context.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

// By cuBLASLt, or by the kernels below. Takes the context's workspace.
void queue_product(const Product& product, CudaContext& cuda);

// c = alpha sum, or c += sum, for any strides and alignment: correct rather than fast.
void queue_plain_product(const Product& product, CudaContext& cuda);

// c = finish(sums), where `sums` is [m, n] packed f32; it may be c. Finishes with a bias or a GELU, not batched.
void queue_finish(const float* sums, const Product& product, CudaContext& cuda);

// out[column] += sum over rows of x[row, column], where x has dense rows. `partial_sums` is device memory of
// column_sums_bytes(). Partial sums are added in the order of their rows.
std::size_t column_sums_bytes(std::int64_t rows, std::int64_t columns, const CudaContext& cuda);
void queue_column_sums(const Factor& x, std::int64_t rows, std::int64_t columns, float* out, void* partial_sums,
                       CudaContext& cuda);

}  // namespace lockstep::kernels
