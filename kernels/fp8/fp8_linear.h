// The kernels of a linear layer in 8-bit floats: which of its three products takes which operand, in which format and
// direction. Activations and weights are E4M3, gradients E5M2 (Micikevicius et al. 2022, arXiv:2209.05433, section
// 3.2). Shapes only; the caller fills in the views.
//
//   forward          y = x w^T       codes of x and w
//   input gradient   dx = dy w       codes of dy, and of w transposed
//   weight gradient  dw += dy^T x    codes of dy transposed and of x transposed; f32
#pragma once

#include "kernels/fp8/fp8.h"
#include "kernels/fp8/gemm_fp8.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::kernels {

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

}  // namespace lockstep::kernels
