#include "parallel/layers/mlp.h"

#include <utility>

#include "core/dtype.h"
#include "kernels/gelu/gelu.h"
#include "kernels/swiglu/swiglu.h"

namespace lockstep::parallel {

void MlpLayer::up(const Workspace& workspace, const LinearWeights& weights, kernels::In x, MlpSaved& saved) const {
  saved.pre = make(workspace, x.dtype, pre_columns());
  if (!in_products()) return of_up().forward(workspace, weights, x, saved.pre.out());
  saved.act = make(workspace, x.dtype, inner);
  of_up().forward_gelu(workspace, weights, x, saved.pre.out(), saved.act.out());
}

void MlpLayer::activate(const Workspace& workspace, MlpSaved& saved) const {
  saved.act = make(workspace, saved.pre.dtype(), inner);
  if (activation == Activation::swiglu) {
    return kernels::run(
        kernels::SwigluForward{.rows = rows, .columns = inner, .x = saved.pre.in(), .y = saved.act.out()},
        workspace.where);
  }
  kernels::run(kernels::GeluForward{.count = saved.act.elems(), .x = saved.pre.in(), .y = saved.act.out()},
               workspace.where);
}

Tensor MlpLayer::down_gradient(const Workspace& workspace, kernels::In weight, const MlpSaved& saved,
                               kernels::In dy) const {
  Tensor made = make(workspace, dy.dtype, inner);
  if (in_products()) {
    of_down().input_gradient_through_gelu(workspace, weight, dy, saved.pre.in(), made.out());
  } else {
    of_down().input_gradient(workspace, weight, dy, made.out());
  }
  return made;
}

Tensor MlpLayer::activation_gradient(const Workspace& workspace, MlpSaved& saved, kernels::In d_act) const {
  const bool gated = activation == Activation::swiglu;
  const kernels::In pre = saved.pre.in();
  Tensor d_pre = gated ? std::move(saved.pre) : make(workspace, d_act.dtype, inner);
  if (gated) {
    kernels::run(kernels::SwigluBackward{.rows = rows, .columns = inner, .x = pre, .dy = d_act, .dx = d_pre.out()},
                 workspace.where);
  } else {
    kernels::run(kernels::GeluBackward{.count = d_act.elems, .x = pre, .dy = d_act, .dx = d_pre.out()},
                 workspace.where);
  }
  return d_pre;
}

}  // namespace lockstep::parallel
