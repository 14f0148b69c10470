// Products of matrices of 8-bit floats (fp8.h): y[m, n] = a[m, k] b[n, k]^T, both with contiguous k, as Hopper's tensor
// cores require. The three products of a linear layer have this form if operands are encoded transposed.
//
// On CUDA, cuBLASLt multiplies the codes if it has an algorithm for their scales (tensor and row) and sizes; otherwise,
// and on the CPU, codes are decoded first and multiplied as bf16 (if y is bf16) or f32: the same numbers, because
// decoding is exact. The CPU thus emulates fp8: it shows the effect of fp8 on training, not its speed. Sums are in f32;
// with cuBLASLt, tensor cores keep fewer bits in sums of 8-bit floats (arXiv:2412.19437, section 3.5.2).
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/fp8/fp8.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {

inline constexpr DTypes kFp8Results{core::DType::f32, core::DType::bf16};

struct Fp8Product {
  std::int64_t m, n, k;
  core::DType a_type = core::DType::f8e4m3;
  core::DType b_type = core::DType::f8e4m3;
  // Blocks of both must have the same length along k: tensor or row, or tile or block.
  ScalePer a_per = ScalePer::tensor;
  ScalePer b_per = ScalePer::tensor;

  ScaleGrid grid_of_a() const { return scale_grid(a_per, m, k); }
  ScaleGrid grid_of_b() const { return scale_grid(b_per, n, k); }
  void check(std::string_view kernel) const;  // throws a usage Error
};

struct GemmFp8 {
  Fp8Product shape;
  bool with_bias = false;
  In a = {};         // codes [m, k]
  In a_scales = {};  // [blocks of a]
  In b = {};         // codes [n, k]
  In b_scales = {};  // [blocks of b]
  In bias = {};      // [n], if with_bias
  Out y = {};        // [m, n]

  std::string_view name() const { return with_bias ? "gemm_fp8_bias" : "gemm_fp8"; }
  void check_shape() const { shape.check(name()); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const Fp8Product& s = self.shape;
    visit("a", self.a, s.m * s.k, DTypes(s.a_type));
    visit("a_scales", self.a_scales, s.grid_of_a().blocks(), kF32);
    visit("b", self.b, s.n * s.k, DTypes(s.b_type));
    visit("b_scales", self.b_scales, s.grid_of_b().blocks(), kF32);
    visit("y", self.y, s.m * s.n, kFp8Results);
    if (self.with_bias) visit("bias", self.bias, s.n, DTypes(self.y.dtype));
  }
};

// The weight gradient of a linear layer: a holds codes of dy^T, b of x^T. The bias's gradient is the sum of dy's rows,
// not of codes.
struct GemmFp8Add {
  Fp8Product shape;
  bool with_bias = false;
  In a = {};         // codes [m, k]
  In a_scales = {};  // [blocks of a]
  In b = {};         // codes [n, k]
  In b_scales = {};  // [blocks of b]
  In dy = {};        // [k, m], if with_bias
  InOut dw = {};     // [m, n] f32: the product is added
  InOut dbias = {};  // [m] f32, if with_bias

  std::string_view name() const { return with_bias ? "gemm_fp8_bias_wgrad" : "gemm_fp8_wgrad"; }
  void check_shape() const { shape.check(name()); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const Fp8Product& s = self.shape;
    visit("a", self.a, s.m * s.k, DTypes(s.a_type));
    visit("a_scales", self.a_scales, s.grid_of_a().blocks(), kF32);
    visit("b", self.b, s.n * s.k, DTypes(s.b_type));
    visit("b_scales", self.b_scales, s.grid_of_b().blocks(), kF32);
    if (self.with_bias) visit("dy", self.dy, s.k * s.m, kFp8Results);
    visit("dw", self.dw, s.m * s.n, kF32);
    if (self.with_bias) visit("dbias", self.dbias, s.m, kF32);
  }
};

// Two FLOPs per multiply-add, and three per block along k for each element of y: the product of the scales, its product
// with the block's sum, and the addition.
Cost cost_of(const GemmFp8& args);
Cost cost_of(const GemmFp8Add& args);

void run_cpu(const GemmFp8& args, ThreadPool& pool);
void run_cpu(const GemmFp8Add& args, ThreadPool& pool);
void run_cuda(const GemmFp8& args, CudaContext& cuda);
void run_cuda(const GemmFp8Add& args, CudaContext& cuda);

// The kernels of a linear layer in 8-bit floats: which of its three products takes which operand, in which format and
// direction. Activations and weights are E4M3, gradients E5M2 (Micikevicius et al. 2022, arXiv:2209.05433, section
// 3.2). Shapes only; the caller fills in the views.
//
//   forward          y = x w^T       codes of x and w
//   input gradient   dx = dy w       codes of dy, and of w transposed
//   weight gradient  dw += dy^T x    codes of dy transposed and of x transposed; f32

struct Fp8Recipe {
  ScalePer activations = ScalePer::tensor;  // and of gradients
  ScalePer weights = ScalePer::tensor;
  bool delayed = false;
};

struct Fp8Linear {
  GemmShape shape;
  Fp8Recipe recipe;

  Fp8Encode x() const { return encode(shape.rows, shape.inputs, recipe.activations, core::DType::f8e4m3); }
  Fp8Encode w() const { return encode(shape.outputs, shape.inputs, recipe.weights, core::DType::f8e4m3); }
  Fp8Encode dy() const { return encode(shape.rows, shape.outputs, recipe.activations, core::DType::f8e5m2); }
  Fp8Encode w_transposed() const {
    return transposed(shape.inputs, shape.outputs, recipe.weights, core::DType::f8e4m3);
  }
  Fp8Encode dy_transposed() const {
    return transposed(shape.outputs, shape.rows, recipe.activations, core::DType::f8e5m2);
  }
  Fp8Encode x_transposed() const {
    return transposed(shape.inputs, shape.rows, recipe.activations, core::DType::f8e4m3);
  }

  GemmFp8 forward(bool with_bias) const { return {.shape = product(x(), w()), .with_bias = with_bias}; }
  GemmFp8 input_gradient() const { return {.shape = product(dy(), w_transposed())}; }
  GemmFp8Add weight_gradient(bool with_bias) const {
    return {.shape = product(dy_transposed(), x_transposed()), .with_bias = with_bias};
  }

 private:
  Fp8Encode encode(std::int64_t rows, std::int64_t columns, ScalePer per, core::DType to) const {
    return {.rows = rows, .columns = columns, .per = per, .to = to, .delayed = recipe.delayed};
  }
  Fp8Encode transposed(std::int64_t rows, std::int64_t columns, ScalePer per, core::DType to) const {
    return {.rows = rows, .columns = columns, .per = per, .to = to, .delayed = recipe.delayed, .transposed = true};
  }
  static Fp8Product product(const Fp8Encode& a, const Fp8Encode& b) {
    return {.m = a.rows, .n = b.rows, .k = a.columns, .a_type = a.to, .b_type = b.to, .a_per = a.per, .b_per = b.per};
  }
};

// The product that a kernel's arguments describe, with its factors either as codes or decoded; for the sources of this
// folder.

// Decodes a factor; the caller sets the destination.
template <class Args>
Fp8Decode decode_of_a(const Args& args) {
  const Fp8Product& s = args.shape;
  return {.rows = s.m, .columns = s.k, .per = s.a_per, .from = s.a_type, .codes = args.a, .scales = args.a_scales};
}
template <class Args>
Fp8Decode decode_of_b(const Args& args) {
  const Fp8Product& s = args.shape;
  return {.rows = s.n, .columns = s.k, .per = s.b_per, .from = s.b_type, .codes = args.b, .scales = args.b_scales};
}

// a is [m, k] and b is [n, k], packed.
Product product_of(const GemmFp8& args, const In& a, const In& b);
Product product_of(const GemmFp8Add& args, const In& a, const In& b);  // the weights' only

}  // namespace lockstep::kernels
