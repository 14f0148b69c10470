// The base of all linear layers' kernels on the CPU: one product of two matrices, and the finish of its sums.
//   c[m, n] = finish(sum over k of a[m, k] b[k, n])
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>

#include "core/dtype.h"
#include "kernels/base/thread_pool.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::kernels {

// Scales of a factor of 8-bit floats (kernels/fp8/fp8.h): one, or one per row of a or column of b. Null: none.
struct ScaledBy {
  const float* scales = nullptr;
  bool for_each = false;
};

// Describes an array in either order: one of the strides is 1. Strides are in elements.
struct Factor {
  const void* data;
  core::DType dtype;
  std::int64_t row_stride;
  std::int64_t column_stride;
  std::int64_t batch_stride = 0;
  ScaledBy scaled_by = {};  // for 8-bit floats

  Factor from(std::int64_t row, std::int64_t column, std::int64_t batch = 0) const {
    const std::int64_t elems = row * row_stride + column * column_stride + batch * batch_stride;
    Factor moved = *this;
    moved.data = static_cast<const std::byte*>(data) + elems * static_cast<std::int64_t>(core::size_of(dtype));
    return moved;
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

enum class Finish : std::uint8_t {
  store,             // c = alpha sum
  bias,              // c = sum + bias
  bias_gelu,         // pre = sum + bias, c = gelu(sum + bias)
  times_gelu_slope,  // c = sum gelu'(pre)
  add,               // c += sum, in f32
};

// The matrix that is written. Its rows are dense; bias and pre have its dtype.
struct Sums {
  void* data;
  core::DType dtype;
  std::int64_t row_stride;
  std::int64_t batch_stride = 0;
  Finish finish = Finish::store;
  float alpha = 1;
  const void* bias = nullptr;      // [n]
  void* pre_written = nullptr;     // shaped like c; for bias_gelu
  const void* pre_read = nullptr;  // shaped like c; for times_gelu_slope

  Sums from(std::int64_t row, std::int64_t column, std::int64_t batch = 0) const {
    const auto size = static_cast<std::int64_t>(core::size_of(dtype));
    const std::int64_t bytes = size * (row * row_stride + column + batch * batch_stride);
    Sums moved = *this;
    moved.data = static_cast<std::byte*>(data) + bytes;
    if (bias != nullptr) moved.bias = static_cast<const std::byte*>(bias) + size * column;
    if (pre_written != nullptr) moved.pre_written = static_cast<std::byte*>(pre_written) + bytes;
    if (pre_read != nullptr) moved.pre_read = static_cast<const std::byte*>(pre_read) + bytes;
    return moved;
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

struct Product {
  std::int64_t batch = 1;
  std::int64_t m, n, k;
  Factor a;  // [batch, m, k]
  Factor b;  // [batch, k, n]
  Sums c;    // [batch, m, n]
  // True if m or k differs from call to call, as with experts' groups of tokens: on CUDA the library's first choice is
  // used then, since timing several would stop the stream for each new length.
  bool varies = false;

  Product rows(std::int64_t begin, std::int64_t end) const {
    Product part = *this;
    part.m = end - begin;
    part.a = a.from(begin, 0);
    part.c = c.from(begin, 0);
    return part;
  }
  Product columns(std::int64_t begin, std::int64_t end) const {
    Product part = *this;
    part.n = end - begin;
    part.b = b.from(0, begin);
    part.c = c.from(0, begin);
    return part;
  }
  Product entry(std::int64_t index) const {
    Product part = *this;
    part.batch = 1;
    part.a = a.from(0, 0, index);
    part.b = b.from(0, 0, index);
    part.c = c.from(0, 0, index);
    return part;
  }

  // The properties that an implementation's speed depends on.
  auto key() const {
    return Key(batch, m, n, k, a.dtype, b.dtype, c.dtype, c.finish, a.column_stride == 1, b.column_stride == 1,
               a.scaled_by.for_each, b.scaled_by.for_each);
  }
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, core::DType, core::DType, core::DType,
                         Finish, bool, bool, bool, bool>;
};

// The product that each kernel's arguments describe, the same on every device.

Product product_of(const GemmForward& args);
Product product_of(const GemmInputGradient& args);
Product product_of(const GemmWeightGradient& args);  // the weights'; the bias's gradient is the sum of dy's rows
Product product_of(const GemmBatched& args);

// An array with dense rows.
Factor rows_of(const In& x, std::int64_t columns);

// The interface between products and the implementations that compute them. An implementation belongs to one pool.

class GemmImplementation {
 public:
  virtual ~GemmImplementation() = default;
  virtual std::string_view name() const = 0;
  virtual bool can(core::DType dtype) const = 0;  // whether it multiplies factors of this dtype
  // Computes a product that is not batched, only on the calling thread, which is thread number `thread` of the pool.
  virtual void run(const Product& product, ThreadPool& pool, int thread) = 0;
};

std::unique_ptr<GemmImplementation> make_onednn_gemm(int num_threads);  // null if it is not built in
std::unique_ptr<GemmImplementation> make_packed_gemm();                 // ours: any dtype, in f32, any CPU

// Finishes sums into rows x columns elements of `c`, which points to the block. Sums are [rows][stride] f32.
void finish_sums(const Sums& c, const float* sums, std::int64_t stride, std::int64_t rows, std::int64_t columns);

// out[column] += sum over rows of x[row, column].
void add_column_sums(const Factor& x, std::int64_t rows, std::int64_t columns, float* out, ThreadPool& pool);

}  // namespace lockstep::kernels
