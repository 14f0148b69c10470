#include "parallel/layers/linear.h"

namespace lockstep::parallel {

void Linear::forward(const Workspace& workspace, const LinearWeights& weights, kernels::In x, kernels::Out y) const {
  const auto epilogue = weights.bias.given() ? kernels::Epilogue::bias : kernels::Epilogue::none;
  kernels::run(
      kernels::GemmForward{
          .shape = shape, .epilogue = epilogue, .x = x, .w = weights.weight, .bias = weights.bias, .y = y},
      workspace.where);
}

void Linear::forward_gelu(const Workspace& workspace, const LinearWeights& weights, kernels::In x, kernels::Out pre,
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

void Linear::input_gradient(const Workspace& workspace, kernels::In weight, kernels::In dy, kernels::Out dx) const {
  kernels::run(kernels::GemmInputGradient{.shape = shape, .dy = dy, .w = weight, .dx = dx}, workspace.where);
}

void Linear::input_gradient_through_gelu(const Workspace& workspace, kernels::In weight, kernels::In dy,
                                         kernels::In pre, kernels::Out d_pre) const {
  kernels::run(
      kernels::GemmInputGradient{.shape = shape, .through_gelu = true, .dy = dy, .w = weight, .pre = pre, .dx = d_pre},
      workspace.where);
}

void Linear::weight_gradient(const Workspace& workspace, kernels::In x, kernels::In dy,
                             const LinearGradients& into) const {
  kernels::run(
      kernels::GemmWeightGradient{
          .shape = shape, .with_bias = into.bias.given(), .x = x, .dy = dy, .dw = into.weight, .dbias = into.bias},
      workspace.where);
}

}  // namespace lockstep::parallel
