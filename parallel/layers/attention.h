// Causal self-attention of one tensor-parallel rank: Q, K and V of its heads (column-parallel), their core, and its
// term of the projection (row-parallel). Shoeybi et al. 2019, arXiv:1909.08053, section 3.
//
//   x [rows, hidden] -> qkv [rows, 3, heads, head_columns] -> o [rows, heads, head_columns] -> term of y [rows, hidden]
//
// Rows are tokens, sequence after sequence. Pieces are apart because memory may be given up between them, the core may
// be run again (arXiv:2205.05198, section 5), and weight gradients may come later than those of inputs.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/base/view.h"
#include "parallel/layers/linear.h"
#include "parallel/layers/workspace.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

struct AttentionSaved {
  Tensor qkv;
  Tensor o;
  Tensor lse;  // f32

  void reset_core();  // o and lse
};

struct AttentionWeights {
  LinearWeights qkv;
  LinearWeights projection;  // its bias on one tensor rank alone
};

struct AttentionGradients {
  LinearGradients qkv;
  LinearGradients projection;
};

struct AttentionLayer {
  std::int64_t batch;
  std::int64_t length;
  std::int64_t hidden;
  std::int64_t heads;  // of this rank
  std::int64_t head_columns;

  std::int64_t rows() const { return batch * length; }
  std::int64_t own_columns() const { return heads * head_columns; }

  void qkv(const Workspace& workspace, const LinearWeights& weights, kernels::In x, AttentionSaved& saved) const;
  void core(const Workspace& workspace, AttentionSaved& saved) const;
  void project(const Workspace& workspace, const LinearWeights& weights, const AttentionSaved& saved,
               kernels::Out y) const;
  // From dy to the gradient of the core's output.
  Tensor projection_gradient(const Workspace& workspace, const LinearWeights& weights, kernels::In dy) const;
  // From the gradient of the core's output to that of qkv.
  Tensor core_gradient(const Workspace& workspace, const AttentionSaved& saved, kernels::In d_o) const;
  // From the gradient of qkv to a term of dx.
  void qkv_gradient(const Workspace& workspace, const LinearWeights& weights, kernels::In d_qkv, kernels::Out dx) const;
  void projection_weight_gradient(const Workspace& workspace, const AttentionSaved& saved, kernels::In dy,
                                  const LinearGradients& into) const;
  void qkv_weight_gradient(const Workspace& workspace, kernels::In x, kernels::In d_qkv,
                           const LinearGradients& into) const;
  // From dy to a term of dx, all three pieces backward. Returns the gradient of qkv, for the weight's.
  Tensor input_gradient(const Workspace& workspace, const AttentionWeights& weights, const AttentionSaved& saved,
                        kernels::In dy, kernels::Out dx) const;
  void weight_gradient(const Workspace& workspace, kernels::In x, const AttentionSaved& saved, kernels::In d_qkv,
                       kernels::In dy, const AttentionGradients& into) const;

 private:
  Linear of_qkv() const { return {{rows(), hidden, 3 * own_columns()}}; }
  Linear of_projection() const { return {{rows(), own_columns(), hidden}}; }
  kernels::AttentionShape shape() const;
};

}  // namespace lockstep::parallel
