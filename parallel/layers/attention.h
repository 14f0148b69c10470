// Causal self-attention of one tensor-parallel rank: Q, K and V of its heads (column-parallel), their attention core,
// and its term of the projection (row-parallel). Shoeybi et al. 2019, arXiv:1909.08053, section 3.
//
//   x [rows, hidden] -> qkv [rows, heads + 2 kv_heads, head_columns] -> o [rows, heads, head_columns]
//     -> term of y [rows, hidden]
//
// Queries and keys may be rotated by their positions on the way (rotary), in place. Rows are tokens, sequence by
// sequence. The pieces are separate functions because memory may be freed between them, the core may be recomputed
// (arXiv:2205.05198, section 5), and weight gradients may come later than input gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/base/view.h"
#include "kernels/rotary/rotary.h"
#include "parallel/layers/linear.h"
#include "parallel/layers/workspace.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

struct AttentionSaved {
  Tensor qkv;
  Tensor o;
  Tensor lse;  // f32
};

struct AttentionLayer {
  std::int64_t batch;
  std::int64_t length;
  std::int64_t hidden;
  std::int64_t heads;     // on this rank
  std::int64_t kv_heads;  // likewise
  std::int64_t head_columns;
  Fp8Scaling fp8 = {};

  std::int64_t rows() const { return batch * length; }
  std::int64_t own_columns() const { return heads * head_columns; }  // columns of queries and of o
  std::int64_t key_columns() const { return kv_heads * head_columns; }
  std::int64_t qkv_columns() const { return own_columns() + 2 * key_columns(); }

  void qkv(const Workspace& workspace, const LinearWeights& weights, kernels::In x, AttentionSaved& saved) const;
  // Rotates the queries and keys of qkv, or rotates gradients back (`how.backward`), by the angles of `how`.
  // `first_positions`: first position of each run of consecutive tokens; runs have equal length.
  void rotate(const Workspace& workspace, kernels::Rotary how, const Tensor& qkv,
              const std::vector<std::int64_t>& first_positions = {0}) const;
  void core(const Workspace& workspace, AttentionSaved& saved) const;
  // Computes the gradient of the core's output from dy.
  Tensor projection_gradient(const Workspace& workspace, kernels::In weight, kernels::In dy) const;
  // Computes the gradient of qkv from that of the core's output.
  Tensor core_gradient(const Workspace& workspace, const AttentionSaved& saved, kernels::In d_o) const;

  Linear of_qkv() const { return {{rows(), hidden, qkv_columns()}, fp8.of_linear(0)}; }
  Linear of_projection() const { return {{rows(), own_columns(), hidden}, fp8.of_linear(1)}; }

 private:
  kernels::AttentionShape shape() const;
};

}  // namespace lockstep::parallel
