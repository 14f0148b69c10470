// The three products of a linear layer in 8-bit floats: factors are encoded when a product needs them, and codes are
// freed after it.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/base/view.h"
#include "kernels/fp8/fp8_linear.h"
#include "parallel/layers/workspace.h"

namespace lockstep::parallel {

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

}  // namespace lockstep::parallel
