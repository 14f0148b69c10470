#include "parallel/layers/norm.h"

#include "core/dtype.h"

namespace lockstep::parallel {
namespace {

void make(const Workspace& workspace, const NormLayer& layer, NormSaved& saved) {
  const auto numbers = [&] { return workspace.memory.make(MemoryKind::activations, core::DType::f32, layer.rows); };
  if (layer.norm == kernels::Norm::layer) saved.mean = numbers();
  saved.rstd = numbers();
}

kernels::NormForward forward_args(const NormLayer& layer, const NormWeights& weights, kernels::In x,
                                  const NormSaved& saved, kernels::Out y) {
  return {.norm = layer.norm,
          .rows = layer.rows,
          .columns = layer.columns,
          .x = x,
          .gamma = weights.gamma,
          .beta = weights.beta,
          .y = y,
          .mean = saved.mean.out(),
          .rstd = saved.rstd.out()};
}

kernels::NormBackward backward_args(const NormLayer& layer, kernels::In gamma, kernels::In x, const NormSaved& saved,
                                    kernels::InOut dy, const NormGradients& into) {
  return {.norm = layer.norm,
          .rows = layer.rows,
          .columns = layer.columns,
          .dy = {dy.data, dy.dtype, dy.elems},
          .x = x,
          .gamma = gamma,
          .mean = saved.mean.in(),
          .rstd = saved.rstd.in(),
          .dx = {dy.data, dy.dtype, dy.elems},
          .dgamma = into.gamma,
          .dbeta = into.beta};
}

}  // namespace

void NormSaved::reset() {
  mean.reset();
  rstd.reset();
}

void NormLayer::forward(const Workspace& workspace, const NormWeights& weights, kernels::In x, NormSaved& saved,
                        kernels::Out y) const {
  make(workspace, *this, saved);
  kernels::run(forward_args(*this, weights, x, saved, y), workspace.where);
}

void NormLayer::forward_of_sum(const Workspace& workspace, const NormWeights& weights, kernels::In x,
                               kernels::In residual, NormSaved& saved, kernels::Out sum, kernels::Out y) const {
  make(workspace, *this, saved);
  kernels::NormForward args = forward_args(*this, weights, x, saved, y);
  args.with_residual = true;
  args.residual = residual;
  args.sum = sum;
  kernels::run(args, workspace.where);
}

void NormLayer::backward(const Workspace& workspace, kernels::In gamma, kernels::In x, const NormSaved& saved,
                         kernels::InOut dy, const NormGradients& into) const {
  kernels::run(backward_args(*this, gamma, x, saved, dy, into), workspace.where);
}

void NormLayer::backward_with_residual(const Workspace& workspace, kernels::In gamma, kernels::In x,
                                       const NormSaved& saved, kernels::In past_norm, kernels::InOut dy,
                                       const NormGradients& into) const {
  kernels::NormBackward args = backward_args(*this, gamma, x, saved, dy, into);
  args.with_residual = true;
  args.dsum = past_norm;
  kernels::run(args, workspace.where);
}

}  // namespace lockstep::parallel
