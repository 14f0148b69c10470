#include "parallel/layers/attention.h"

#include "core/dtype.h"

namespace lockstep::parallel {

kernels::AttentionShape AttentionLayer::shape() const {
  return {.batch = batch,
          .heads = heads,
          .queries = length,
          .keys = length,
          .head_columns = head_columns,
          .qkv_stride = qkv_columns(),
          .kv_heads = kv_heads};
}

void AttentionLayer::qkv(const Workspace& workspace, const LinearWeights& weights, kernels::In x,
                         AttentionSaved& saved) const {
  saved.qkv = workspace.memory.make(MemoryKind::activations, x.dtype, rows() * qkv_columns());
  of_qkv().forward(workspace, weights, x, saved.qkv.out());
}

void AttentionLayer::rotate(const Workspace& workspace, kernels::Rotary how, const Tensor& qkv,
                            const std::vector<std::int64_t>& first_positions) const {
  const bool at_once = first_positions == std::vector<std::int64_t>{0};
  how.length = length / static_cast<std::int64_t>(first_positions.size());
  how.rows = at_once ? rows() : how.length;
  how.heads = heads + kv_heads;
  how.head_columns = head_columns;
  how.stride = qkv_columns();
  for (std::int64_t row = 0, run = 0; row < rows(); row += how.rows, ++run) {
    how.first_position = first_positions[static_cast<std::size_t>(run) % first_positions.size()];
    how.x = qkv.in(row * how.stride, how.extent());
    how.y = qkv.out(row * how.stride, how.extent());
    kernels::run(how, workspace.where);
  }
}

void AttentionLayer::core(const Workspace& workspace, AttentionSaved& saved) const {
  saved.o = workspace.memory.make(MemoryKind::activations, saved.qkv.dtype(), rows() * own_columns());
  saved.lse = workspace.memory.make(MemoryKind::activations, core::DType::f32, rows() * heads);
  const kernels::AttentionShape attention = shape();
  const std::int64_t keys = own_columns();
  const std::int64_t values = keys + key_columns();
  kernels::run(kernels::AttentionForward{.shape = attention,
                                         .q = saved.qkv.in(0, attention.extent()),
                                         .k = saved.qkv.in(keys, attention.key_extent()),
                                         .v = saved.qkv.in(values, attention.key_extent()),
                                         .o = saved.o.out(),
                                         .lse = saved.lse.out()},
               workspace.where);
}

Tensor AttentionLayer::core_gradient(const Workspace& workspace, const AttentionSaved& saved, kernels::In d_o) const {
  Tensor d_qkv = workspace.memory.make(MemoryKind::activations, d_o.dtype, rows() * qkv_columns());
  const kernels::AttentionShape attention = shape();
  const std::int64_t keys = own_columns();
  const std::int64_t values = keys + key_columns();
  kernels::run(kernels::AttentionBackward{.shape = attention,
                                          .q = saved.qkv.in(0, attention.extent()),
                                          .k = saved.qkv.in(keys, attention.key_extent()),
                                          .v = saved.qkv.in(values, attention.key_extent()),
                                          .o = saved.o.in(),
                                          .lse = saved.lse.in(),
                                          .d_o = d_o,
                                          .dq = d_qkv.out(0, attention.extent()),
                                          .dk = d_qkv.out(keys, attention.key_extent()),
                                          .dv = d_qkv.out(values, attention.key_extent())},
               workspace.where);
  return d_qkv;
}

Tensor AttentionLayer::projection_gradient(const Workspace& workspace, kernels::In weight, kernels::In dy) const {
  Tensor d_o = workspace.memory.make(MemoryKind::activations, dy.dtype, rows() * own_columns());
  of_projection().input_gradient(workspace, weight, dy, d_o.out());
  return d_o;
}

}  // namespace lockstep::parallel
