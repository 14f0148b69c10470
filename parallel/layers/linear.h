// Tensor-parallel linear layers, in 16-bit and 8-bit floats.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/context.h"
#include "kernels/base/view.h"
#include "kernels/fp8/gemm_fp8.h"
#include "kernels/gemm/gemm.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

// Resources of a layer: the rank's memory and the context of its kernels.

struct Workspace {
  Memory& memory;
  const kernels::Context& where;
};

// The three products of a linear layer in 8-bit floats: factors are encoded when a product needs them, and codes are
// freed after it.

// Numbers per linear layer for delayed scaling: the largest elements of x, of w and of dy.
inline constexpr std::int64_t kFp8Tensors = 3;

struct Fp8Scaling {
  std::optional<kernels::Fp8Recipe> recipe = {};
  // With delayed scaling: kFp8Tensors numbers per linear layer of a block, f32.
  kernels::In previous = {};
  kernels::InOut raised = {};

  Fp8Scaling of_linear(std::int64_t index) const;
};

struct Fp8Products {
  kernels::Fp8Linear linear;
  Fp8Scaling scaling;  // scaling of this layer only

  // y = x w^T + bias
  void forward(const Workspace& workspace, kernels::In weight, kernels::In bias, kernels::In x, kernels::Out y) const;
  void input_gradient(const Workspace& workspace, kernels::In weight, kernels::In dy, kernels::Out dx) const;
  // Adds to the gradients.
  void weight_gradient(const Workspace& workspace, kernels::In x, kernels::In dy, kernels::InOut dw,
                       kernels::InOut dbias) const;
};

// A linear layer, or one tensor-parallel rank's part of it: the local product is the same for both splits of Shoeybi et
// al. 2019 (arXiv:1909.08053, section 3).
//   column-parallel   a share of the outputs and of the bias; takes whole inputs of all rows
//   row-parallel      a share of the inputs; its outputs are terms of a sum over the ranks, and one rank adds the bias
// Ranks communicate between layers, not within them; the callers of these functions do so.

struct LinearWeights {
  kernels::In weight;     // [outputs, inputs]
  kernels::In bias = {};  // [outputs]; empty if another rank adds it
};

// f32; layers add to them.
struct LinearGradients {
  kernels::InOut weight;
  kernels::InOut bias = {};
};

// A rank's share of the layer; rows are tokens.
struct Linear {
  kernels::GemmShape shape;
  Fp8Scaling fp8 = {};

  // y[rows, outputs]
  void forward(const Workspace& workspace, const LinearWeights& weights, kernels::In x, kernels::Out y) const {
    if (fp8.recipe) return fp8_products().forward(workspace, weights.weight, weights.bias, x, y);
    const auto epilogue = weights.bias.given() ? kernels::Epilogue::bias : kernels::Epilogue::none;
    kernels::run(
        kernels::GemmForward{
            .shape = shape, .epilogue = epilogue, .x = x, .w = weights.weight, .bias = weights.bias, .y = y},
        workspace.where);
  }
  // y = GELU(pre). Not available with 8-bit floats, whose products have no fused GELU.
  void forward_gelu(const Workspace& workspace, const LinearWeights& weights, kernels::In x, kernels::Out pre,
                    kernels::Out y) const {
    kernels::run(kernels::GemmForward{.shape = shape,
                                      .epilogue = kernels::Epilogue::bias_gelu,
                                      .x = x,
                                      .w = weights.weight,
                                      .bias = weights.bias,
                                      .pre = pre,
                                      .y = y},
                 workspace.where);
  }
  // dx[rows, inputs]; column-parallel: a term of a sum over the ranks
  void input_gradient(const Workspace& workspace, kernels::In weight, kernels::In dy, kernels::Out dx) const {
    if (fp8.recipe) return fp8_products().input_gradient(workspace, weight, dy, dx);
    kernels::run(kernels::GemmInputGradient{.shape = shape, .dy = dy, .w = weight, .dx = dx}, workspace.where);
  }
  // Gradient of `pre`, where x = GELU(pre).
  void input_gradient_through_gelu(const Workspace& workspace, kernels::In weight, kernels::In dy, kernels::In pre,
                                   kernels::Out d_pre) const {
    kernels::run(
        kernels::GemmInputGradient{
            .shape = shape, .through_gelu = true, .dy = dy, .w = weight, .pre = pre, .dx = d_pre},
        workspace.where);
  }
  void weight_gradient(const Workspace& workspace, kernels::In x, kernels::In dy, const LinearGradients& into) const {
    if (fp8.recipe) return fp8_products().weight_gradient(workspace, x, dy, into.weight, into.bias);
    kernels::run(
        kernels::GemmWeightGradient{
            .shape = shape, .with_bias = into.bias.given(), .x = x, .dy = dy, .dw = into.weight, .dbias = into.bias},
        workspace.where);
  }

 private:
  Fp8Products fp8_products() const { return {{shape, *fp8.recipe}, fp8}; }
};

}  // namespace lockstep::parallel
