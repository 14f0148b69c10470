#include "parallel/layers/norm.h"

#include "core/dtype.h"
#include "kernels/norm/norm.h"

namespace lockstep::parallel {
namespace {

void make(const Workspace& workspace, std::int64_t rows, NormSaved& saved) {
  saved.mean = workspace.memory.make(MemoryKind::activations, core::DType::f32, rows);
  saved.rstd = workspace.memory.make(MemoryKind::activations, core::DType::f32, rows);
}

kernels::NormForward forward_args(const LayerNorm& norm, const NormWeights& weights, kernels::In x,
                                  const NormSaved& saved, kernels::Out y) {
  return {.norm = kernels::Norm::layer,
          .rows = norm.rows,
          .columns = norm.columns,
          .x = x,
          .gamma = weights.gamma,
          .beta = weights.beta,
          .y = y,
          .mean = saved.mean.out(),
          .rstd = saved.rstd.out()};
}

kernels::NormBackward backward_args(const LayerNorm& norm, kernels::In gamma, kernels::In x, const NormSaved& saved,
                                    kernels::InOut dy, const NormGradients& into) {
  return {.norm = kernels::Norm::layer,
          .rows = norm.rows,
          .columns = norm.columns,
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

void LayerNorm::forward(const Workspace& workspace, const NormWeights& weights, kernels::In x, NormSaved& saved,
                        kernels::Out y) const {
  make(workspace, rows, saved);
  kernels::run(forward_args(*this, weights, x, saved, y), workspace.where);
}

void LayerNorm::forward_of_sum(const Workspace& workspace, const NormWeights& weights, kernels::In x,
                               kernels::In residual, NormSaved& saved, kernels::Out sum, kernels::Out y) const {
  make(workspace, rows, saved);
  kernels::NormForward args = forward_args(*this, weights, x, saved, y);
  args.with_residual = true;
  args.residual = residual;
  args.sum = sum;
  kernels::run(args, workspace.where);
}

void LayerNorm::backward(const Workspace& workspace, kernels::In gamma, kernels::In x, const NormSaved& saved,
                         kernels::InOut dy, const NormGradients& into) const {
  kernels::run(backward_args(*this, gamma, x, saved, dy, into), workspace.where);
}

void LayerNorm::backward_with_residual(const Workspace& workspace, kernels::In gamma, kernels::In x,
                                       const NormSaved& saved, kernels::In past_norm, kernels::InOut dy,
                                       const NormGradients& into) const {
  kernels::NormBackward args = backward_args(*this, gamma, x, saved, dy, into);
  args.with_residual = true;
  args.dsum = past_norm;
  kernels::run(args, workspace.where);
}

}  // namespace lockstep::parallel
