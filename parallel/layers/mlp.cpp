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

Tensor MlpLayer::input_gradient(const Workspace& workspace, const MlpWeights& weights, const MlpSaved& saved,
                                kernels::In dy, kernels::Out dx) const {
  Tensor d_pre = workspace.memory.make(MemoryKind::activations, dy.dtype, rows * inner);
  of_down().input_gradient_through_gelu(workspace, weights.down.weight, dy, saved.pre.in(), d_pre.out());
  of_up().input_gradient(workspace, weights.up.weight, d_pre.in(), dx);
  return d_pre;
}

void MlpLayer::weight_gradient(const Workspace& workspace, kernels::In x, const MlpSaved& saved, kernels::In d_pre,
                               kernels::In dy, const MlpGradients& into) const {
  of_down().weight_gradient(workspace, saved.act.in(), dy, into.down);
  of_up().weight_gradient(workspace, x, d_pre, into.up);
}

}  // namespace lockstep::parallel
