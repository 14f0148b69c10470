#include "parallel/layers/mlp.h"

namespace lockstep::parallel {

void MlpSaved::reset() {
  pre.reset();
  act.reset();
}

void MlpLayer::up(const Workspace& workspace, const LinearWeights& weights, kernels::In x, MlpSaved& saved) const {
  saved.pre = workspace.memory.make(MemoryKind::activations, x.dtype, rows * inner);
  saved.act = workspace.memory.make(MemoryKind::activations, x.dtype, rows * inner);
  of_up().forward_gelu(workspace, weights, x, saved.pre.out(), saved.act.out());
}

void MlpLayer::down(const Workspace& workspace, const LinearWeights& weights, const MlpSaved& saved,
                    kernels::Out y) const {
  of_down().forward(workspace, weights, saved.act.in(), y);
}

Tensor MlpLayer::down_gradient(const Workspace& workspace, const LinearWeights& weights, const MlpSaved& saved,
                               kernels::In dy) const {
  Tensor d_pre = workspace.memory.make(MemoryKind::activations, dy.dtype, rows * inner);
  of_down().input_gradient_through_gelu(workspace, weights.weight, dy, saved.pre.in(), d_pre.out());
  return d_pre;
}

void MlpLayer::up_gradient(const Workspace& workspace, const LinearWeights& weights, kernels::In d_pre,
                           kernels::Out dx) const {
  of_up().input_gradient(workspace, weights.weight, d_pre, dx);
}

void MlpLayer::down_weight_gradient(const Workspace& workspace, const MlpSaved& saved, kernels::In dy,
                                    const LinearGradients& into) const {
  of_down().weight_gradient(workspace, saved.act.in(), dy, into);
}

void MlpLayer::up_weight_gradient(const Workspace& workspace, kernels::In x, kernels::In d_pre,
                                  const LinearGradients& into) const {
  of_up().weight_gradient(workspace, x, d_pre, into);
}

Tensor MlpLayer::input_gradient(const Workspace& workspace, const MlpWeights& weights, const MlpSaved& saved,
                                kernels::In dy, kernels::Out dx) const {
  Tensor d_pre = down_gradient(workspace, weights.down, saved, dy);
  up_gradient(workspace, weights.up, d_pre.in(), dx);
  return d_pre;
}

void MlpLayer::weight_gradient(const Workspace& workspace, kernels::In x, const MlpSaved& saved, kernels::In d_pre,
                               kernels::In dy, const MlpGradients& into) const {
  down_weight_gradient(workspace, saved, dy, into.down);
  up_weight_gradient(workspace, x, d_pre, into.up);
}

}  // namespace lockstep::parallel
