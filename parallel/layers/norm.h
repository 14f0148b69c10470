// LayerNorm or RMSNorm before a block, alone or with the preceding residual addition. Sequence-parallel ranks have a
// share of the rows each (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2): gradients of gamma and beta are
// then terms of a sum over them.
#pragma once

#include <cstdint>

#include "kernels/base/view.h"
#include "kernels/norm/norm.h"
#include "parallel/layers/workspace.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

struct NormWeights {
  kernels::In gamma;      // [columns]
  kernels::In beta = {};  // [columns], LayerNorm only
};

// f32; layers add to them.
struct NormGradients {
  kernels::InOut gamma;
  kernels::InOut beta = {};  // LayerNorm only
};

// One f32 per row, kept for the backward.
struct NormSaved {
  Tensor mean;  // LayerNorm only
  Tensor rstd;

  void reset();
};

struct NormLayer {
  kernels::Norm norm;
  std::int64_t rows;
  std::int64_t columns;

  void forward(const Workspace& workspace, const NormWeights& weights, kernels::In x, NormSaved& saved,
               kernels::Out y) const;
  // sum = x + residual, y = norm(sum)
  void forward_of_sum(const Workspace& workspace, const NormWeights& weights, kernels::In x, kernels::In residual,
                      NormSaved& saved, kernels::Out sum, kernels::Out y) const;
  // dy becomes dx. `x` is the norm's input.
  void backward(const Workspace& workspace, kernels::In gamma, kernels::In x, const NormSaved& saved, kernels::InOut dy,
                const NormGradients& into) const;
  // Likewise, plus the gradient that reaches x through the residual connection.
  void backward_with_residual(const Workspace& workspace, kernels::In gamma, kernels::In x, const NormSaved& saved,
                              kernels::In past_norm, kernels::InOut dy, const NormGradients& into) const;
};

}  // namespace lockstep::parallel
