#include "parallel/layers/attention.h"

#include "core/dtype.h"

namespace lockstep::parallel {

void AttentionSaved::reset_core() {
  o.reset();
  lse.reset();
}

kernels::AttentionShape AttentionLayer::shape() const {
  return {.batch = batch,
          .heads = heads,
          .queries = length,
          .keys = length,
          .head_columns = head_columns,
          .qkv_stride = 3 * own_columns()};
}

void AttentionLayer::qkv(const Workspace& workspace, const LinearWeights& weights, kernels::In x,
                         AttentionSaved& saved) const {
  saved.qkv = workspace.memory.make(MemoryKind::activations, x.dtype, rows() * 3 * own_columns());
  of_qkv().forward(workspace, weights, x, saved.qkv.out());
}

void AttentionLayer::core(const Workspace& workspace, AttentionSaved& saved) const {
  saved.o = workspace.memory.make(MemoryKind::activations, saved.qkv.dtype(), rows() * own_columns());
  saved.lse = workspace.memory.make(MemoryKind::activations, core::DType::f32, rows() * heads);
  const kernels::AttentionShape attention = shape();
  const std::int64_t extent = attention.extent(length);
  kernels::run(kernels::AttentionForward{.shape = attention,
                                         .q = saved.qkv.in(0, extent),
                                         .k = saved.qkv.in(own_columns(), extent),
                                         .v = saved.qkv.in(2 * own_columns(), extent),
                                         .o = saved.o.out(),
                                         .lse = saved.lse.out()},
               workspace.where);
}

void AttentionLayer::project(const Workspace& workspace, const LinearWeights& weights, const AttentionSaved& saved,
                             kernels::Out y) const {
  of_projection().forward(workspace, weights, saved.o.in(), y);
}

Tensor AttentionLayer::core_gradient(const Workspace& workspace, const AttentionSaved& saved, kernels::In d_o) const {
  Tensor d_qkv = workspace.memory.make(MemoryKind::activations, d_o.dtype, rows() * 3 * own_columns());
  const kernels::AttentionShape attention = shape();
  const std::int64_t extent = attention.extent(length);
  kernels::run(kernels::AttentionBackward{.shape = attention,
                                          .q = saved.qkv.in(0, extent),
                                          .k = saved.qkv.in(own_columns(), extent),
                                          .v = saved.qkv.in(2 * own_columns(), extent),
                                          .o = saved.o.in(),
                                          .lse = saved.lse.in(),
                                          .d_o = d_o,
                                          .dq = d_qkv.out(0, extent),
                                          .dk = d_qkv.out(own_columns(), extent),
                                          .dv = d_qkv.out(2 * own_columns(), extent)},
               workspace.where);
  return d_qkv;
}

Tensor AttentionLayer::projection_gradient(const Workspace& workspace, const LinearWeights& weights,
                                           kernels::In dy) const {
  Tensor d_o = workspace.memory.make(MemoryKind::activations, dy.dtype, rows() * own_columns());
  of_projection().input_gradient(workspace, weights.weight, dy, d_o.out());
  return d_o;
}

void AttentionLayer::qkv_gradient(const Workspace& workspace, const LinearWeights& weights, kernels::In d_qkv,
                                  kernels::Out dx) const {
  of_qkv().input_gradient(workspace, weights.weight, d_qkv, dx);
}

void AttentionLayer::projection_weight_gradient(const Workspace& workspace, const AttentionSaved& saved, kernels::In dy,
                                                const LinearGradients& into) const {
  of_projection().weight_gradient(workspace, saved.o.in(), dy, into);
}

void AttentionLayer::qkv_weight_gradient(const Workspace& workspace, kernels::In x, kernels::In d_qkv,
                                         const LinearGradients& into) const {
  of_qkv().weight_gradient(workspace, x, d_qkv, into);
}

Tensor AttentionLayer::input_gradient(const Workspace& workspace, const AttentionWeights& weights,
                                      const AttentionSaved& saved, kernels::In dy, kernels::Out dx) const {
  const Tensor d_o = projection_gradient(workspace, weights.projection, dy);
  Tensor d_qkv = core_gradient(workspace, saved, d_o.in());
  qkv_gradient(workspace, weights.qkv, d_qkv.in(), dx);
  return d_qkv;
}

void AttentionLayer::weight_gradient(const Workspace& workspace, kernels::In x, const AttentionSaved& saved,
                                     kernels::In d_qkv, kernels::In dy, const AttentionGradients& into) const {
  projection_weight_gradient(workspace, saved, dy, into.projection);
  qkv_weight_gradient(workspace, x, d_qkv, into.qkv);
}

}  // namespace lockstep::parallel
