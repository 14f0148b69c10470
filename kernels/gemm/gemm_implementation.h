// The interface between products and the implementations that compute them. An implementation belongs to one pool.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "kernels/base/thread_pool.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

class GemmImplementation {
 public:
  virtual ~GemmImplementation() = default;
  virtual std::string_view name() const = 0;
  virtual bool can(core::DType dtype) const = 0;  // whether it multiplies factors of this dtype
  // Computes a product that is not batched, only on the calling thread, which is thread number `thread` of the pool.
  virtual void run(const Product& product, ThreadPool& pool, int thread) = 0;
};

// Each returns null if it is not built in, or not supported by this CPU.
std::unique_ptr<GemmImplementation> make_onednn_gemm(int num_threads);
std::unique_ptr<GemmImplementation> make_amx_gemm();     // ours: bf16, and f32 as sums of bf16, on AMX tiles
std::unique_ptr<GemmImplementation> make_packed_gemm();  // ours: any dtype, in f32, any CPU

// Finishes sums into rows x columns elements of `c`, which points to the block. Sums are [rows][stride] f32.
void finish_sums(const Sums& c, const float* sums, std::int64_t stride, std::int64_t rows, std::int64_t columns);

// out[column] += sum over rows of x[row, column].
void add_column_sums(const Factor& x, std::int64_t rows, std::int64_t columns, float* out, ThreadPool& pool);

}  // namespace lockstep::kernels
