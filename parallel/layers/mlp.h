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

  void reset();
};

struct MlpWeights {
  LinearWeights up;
  LinearWeights down;  // its bias on one tensor rank alone
};

struct MlpGradients {
  LinearGradients up;
  LinearGradients down;
};

struct MlpLayer {
  std::int64_t rows;
  std::int64_t hidden;
  std::int64_t inner;  // of this rank

  void up(const Workspace& workspace, const LinearWeights& weights, kernels::In x, MlpSaved& saved) const;
  // A term of y [rows, hidden].
  void down(const Workspace& workspace, const LinearWeights& weights, const MlpSaved& saved, kernels::Out y) const;
  // From dy to the gradient of what went into the GELU, and from that to a term of dx.
  Tensor down_gradient(const Workspace& workspace, const LinearWeights& weights, const MlpSaved& saved,
                       kernels::In dy) const;
  void up_gradient(const Workspace& workspace, const LinearWeights& weights, kernels::In d_pre, kernels::Out dx) const;
  void down_weight_gradient(const Workspace& workspace, const MlpSaved& saved, kernels::In dy,
                            const LinearGradients& into) const;
  void up_weight_gradient(const Workspace& workspace, kernels::In x, kernels::In d_pre,
                          const LinearGradients& into) const;
  // From dy to a term of dx. Returns the gradient of what went into the GELU, for the weights'.
  Tensor input_gradient(const Workspace& workspace, const MlpWeights& weights, const MlpSaved& saved, kernels::In dy,
                        kernels::Out dx) const;
  void weight_gradient(const Workspace& workspace, kernels::In x, const MlpSaved& saved, kernels::In d_pre,
                       kernels::In dy, const MlpGradients& into) const;

 private:
  Linear of_up() const { return {{rows, hidden, inner}}; }
  Linear of_down() const { return {{rows, inner, hidden}}; }
};

}  // namespace lockstep::parallel
