// The MLP of one tensor-parallel rank: y = activation(x w1^T + b1) w2^T + b2. The first product is column-parallel
// (SwiGLU's gate and up in one product), the second row-parallel, so that ranks do not communicate between them
// (Shoeybi et al. 2019, section 3).
#pragma once

#include <cstdint>

#include "kernels/base/view.h"
#include "parallel/layers/linear.h"
#include "parallel/layers/workspace.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

enum class Activation : std::uint8_t {
  gelu_in_products,  // fused with the bias into the product before it, and into the gradient of the product after it
  gelu,              // a kernel of its own
  swiglu,            // a kernel of its own; `pre` has the gate's columns and then those of up
};

struct MlpSaved {
  Tensor pre;  // before the activation
  Tensor act;  // after the activation
};

struct MlpLayer {
  std::int64_t rows;
  std::int64_t hidden;
  std::int64_t inner;                                    // on this rank
  Activation activation = Activation::gelu_in_products;  // a kernel of its own with 8-bit floats
  Fp8Scaling fp8 = {};

  bool in_products() const { return activation == Activation::gelu_in_products; }
  std::int64_t pre_columns() const { return activation == Activation::swiglu ? 2 * inner : inner; }

  Linear of_up() const { return {{rows, hidden, pre_columns()}, fp8.of_linear(2)}; }
  Linear of_down() const { return {{rows, inner, hidden}, fp8.of_linear(3)}; }

  // Computes `pre`, and `act` if the activation is fused into products.
  void up(const Workspace& workspace, const LinearWeights& weights, kernels::In x, MlpSaved& saved) const;
  // Computes the gradient of `pre` from dy, or that of `act` if the activation is a kernel of its own.
  Tensor down_gradient(const Workspace& workspace, kernels::In weight, const MlpSaved& saved, kernels::In dy) const;

  // ---- if the activation is a kernel of its own
  void activate(const Workspace& workspace, MlpSaved& saved) const;
  // Computes the gradient of `pre` from d_act; with SwiGLU it reuses the memory of `pre`.
  Tensor activation_gradient(const Workspace& workspace, MlpSaved& saved, kernels::In d_act) const;

 private:
  Tensor make(const Workspace& workspace, core::DType dtype, std::int64_t columns) const {
    return workspace.memory.make(MemoryKind::activations, dtype, rows * columns);
  }
};

}  // namespace lockstep::parallel
