// Products on CUDA, and our own kernels for everything that cuBLASLt cannot do with a shape, dtype or alignment, and
// for the gradient of a bias. All are queued on the context's stream, and deterministic.
#pragma once

#include <cstddef>

#include "kernels/base/cuda_context.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

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
