// The MLP of one tensor-parallel rank: y = GELU(x w1^T + b1) w2^T + b2, the first product column-parallel, the second
// row-parallel, so that nothing is exchanged between them (Shoeybi et al. 2019, arXiv:1909.08053, section 3).
#pragma once

#include <cstdint>

#include "kernels/base/view.h"
#include "parallel/layers/linear.h"
#include "parallel/layers/workspace.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

struct MlpSaved {
  Tensor pre;  // before the GELU
  Tensor act;  // behind it
};

struct MlpLayer {
  std::int64_t rows;
  std::int64_t hidden;
  std::int64_t inner;  // of this rank

  Linear of_up() const { return {{rows, hidden, inner}}; }
  Linear of_down() const { return {{rows, inner, hidden}}; }

  void up(const Workspace& workspace, const LinearWeights& weights, kernels::In x, MlpSaved& saved) const {
    saved.pre = workspace.memory.make(MemoryKind::activations, x.dtype, rows * inner);
    saved.act = workspace.memory.make(MemoryKind::activations, x.dtype, rows * inner);
    of_up().forward_gelu(workspace, weights, x, saved.pre.out(), saved.act.out());
  }
  // From dy to the gradient of what went into the GELU.
  Tensor down_gradient(const Workspace& workspace, kernels::In weight, const MlpSaved& saved, kernels::In dy) const {
    Tensor d_pre = workspace.memory.make(MemoryKind::activations, dy.dtype, rows * inner);
    of_down().input_gradient_through_gelu(workspace, weight, dy, saved.pre.in(), d_pre.out());
    return d_pre;
  }
};

}  // namespace lockstep::parallel
