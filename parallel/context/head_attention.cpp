#include "parallel/context/attention_forms.h"

#include "core/error.h"

namespace lockstep::parallel {

using workload::ContextArray;
using workload::ExchangePosition;

HeadAttention::HeadAttention(const ContextPlan& plan, const Workspace& workspace)
    : plan_(plan), layer_(plan.layer()), workspace_(workspace) {}

Tensor HeadAttention::make(std::int64_t elems) const {
  return workspace_.memory.make(MemoryKind::activations, layer_.dtype, elems);
}

kernels::AttentionShape HeadAttention::shape() const {
  return {.batch = layer_.batch,
          .heads = layer_.heads / layer_.shape.ranks,
          .queries = layer_.length,
          .keys = layer_.length,
          .head_columns = layer_.head_columns,
          .causal = layer_.shape.causal,
          .kv_heads = layer_.kv_heads / layer_.shape.ranks};
}

// ---- positions

void HeadAttention::spread(kernels::In matrix, const Columns& columns, const Tensor& parts) const {
  const std::int64_t rows = layer_.rows();
  const std::int64_t all = columns.of_rank * layer_.shape.ranks;
  for (std::int64_t part = 0; part < layer_.shape.ranks; ++part) {
    for (std::int64_t a = 0; a < columns.arrays; ++a) {
      copy_matrix(workspace_.where, rows, columns.of_rank, matrix,
                  {columns.first + a * all + part * columns.of_rank, columns.stride}, parts.out(),
                  {(part * columns.arrays + a) * rows * columns.of_rank});
    }
  }
}

void HeadAttention::collect(const Tensor& parts, const Columns& columns, kernels::Out matrix) const {
  const std::int64_t rows = layer_.rows();
  const std::int64_t all = columns.of_rank * layer_.shape.ranks;
  for (std::int64_t part = 0; part < layer_.shape.ranks; ++part) {
    for (std::int64_t a = 0; a < columns.arrays; ++a) {
      copy_matrix(workspace_.where, rows, columns.of_rank, parts.in(),
                  {(part * columns.arrays + a) * rows * columns.of_rank}, matrix,
                  {columns.first + a * all + part * columns.of_rank, columns.stride});
    }
  }
}

// Parts are [rank, array, batch, tokens, columns], sequences [array, batch, rank, tokens, columns].
void HeadAttention::to_sequences(const Tensor& parts, std::int64_t columns, std::int64_t arrays,
                                 const Tensor& sequences) const {
  const std::int64_t block = layer_.tokens() * columns;
  const std::int64_t blocks = arrays * layer_.batch;
  for (std::int64_t b = 0; b < blocks; ++b) {
    copy_matrix(workspace_.where, layer_.shape.ranks, block, parts.in(), {b * block, blocks * block}, sequences.out(),
                {b * layer_.shape.ranks * block});
  }
}

void HeadAttention::from_sequences(const Tensor& sequences, std::int64_t columns, std::int64_t arrays,
                                   const Tensor& parts) const {
  const std::int64_t block = layer_.tokens() * columns;
  const std::int64_t blocks = arrays * layer_.batch;
  for (std::int64_t b = 0; b < blocks; ++b) {
    copy_matrix(workspace_.where, layer_.shape.ranks, block, sequences.in(), {b * layer_.shape.ranks * block},
                parts.out(), {b * block, blocks * block});
  }
}

// ---- forward

void HeadAttention::split(kernels::In qkv) {
  const std::int64_t fused = layer_.fused_columns();
  queries_.sent = make_as(ContextArray::queries);
  keys_.sent = make_as(ContextArray::keys);
  spread(qkv, {0, fused, own_queries(), 1}, queries_.sent);
  spread(qkv, {layer_.query_columns(), fused, own_keys(), 2}, keys_.sent);
}

void HeadAttention::core(std::int32_t /*turn*/) {
  q_ = make_as(ContextArray::queries);
  to_sequences(queries_.received, own_queries(), 1, q_);
  queries_.received.reset();
  kv_ = make_as(ContextArray::keys);
  to_sequences(keys_.received, own_keys(), 2, kv_);
  keys_.received.reset();
  o_ = make_as(ContextArray::outputs);
  lse_ = workspace_.memory.make(MemoryKind::activations, core::DType::f32, layer_.elems(ContextArray::sums));
  kernels::run(kernels::AttentionForward{.shape = shape(),
                                         .q = q_.in(),
                                         .k = kv_.in(0, kv_.elems() / 2),
                                         .v = kv_.in(kv_.elems() / 2, kv_.elems() / 2),
                                         .o = o_.out(),
                                         .lse = lse_.out()},
               workspace_.where);
  outputs_.sent = make_as(ContextArray::outputs);
  from_sequences(o_, own_queries(), 1, outputs_.sent);
}

void HeadAttention::merge(std::int32_t /*turn*/) {
  output_ = make_as(ContextArray::outputs);
  collect(outputs_.received, {0, layer_.query_columns(), own_queries(), 1}, output_.out());
  outputs_.received.reset();
}

void HeadAttention::forget() {
  for (Tensor* const tensor : {&q_, &kv_, &o_, &lse_}) tensor->reset();
}

// ---- backward

void HeadAttention::begin_backward(kernels::In d_o) {
  d_outputs_.sent = make_as(ContextArray::d_outputs);
  spread(d_o, {0, layer_.query_columns(), own_queries(), 1}, d_outputs_.sent);
}

void HeadAttention::core_gradient(std::int32_t /*turn*/) {
  Tensor d_o = make_as(ContextArray::d_outputs);
  to_sequences(d_outputs_.received, own_queries(), 1, d_o);
  d_outputs_.received.reset();
  Tensor dq = make_as(ContextArray::d_queries);
  Tensor d_kv = make_as(ContextArray::d_keys);
  const std::int64_t keys = kv_.elems() / 2;
  kernels::run(kernels::AttentionBackward{.shape = shape(),
                                          .q = q_.in(),
                                          .k = kv_.in(0, keys),
                                          .v = kv_.in(keys, keys),
                                          .o = o_.in(),
                                          .lse = lse_.in(),
                                          .d_o = d_o.in(),
                                          .dq = dq.out(),
                                          .dk = d_kv.out(0, keys),
                                          .dv = d_kv.out(keys, keys)},
               workspace_.where);
  for (Tensor* const tensor : {&q_, &kv_, &o_, &lse_, &d_o}) tensor->reset();
  d_queries_.sent = make_as(ContextArray::d_queries);
  from_sequences(dq, own_queries(), 1, d_queries_.sent);
  dq.reset();
  d_keys_.sent = make_as(ContextArray::d_keys);
  from_sequences(d_kv, own_keys(), 2, d_keys_.sent);
}

void HeadAttention::join(kernels::Out d_qkv) {
  const std::int64_t fused = layer_.fused_columns();
  collect(d_queries_.received, {0, fused, own_queries(), 1}, d_qkv);
  d_queries_.received.reset();
  collect(d_keys_.received, {layer_.query_columns(), fused, own_keys(), 2}, d_qkv);
  d_keys_.received.reset();
}

// ---- exchanges

HeadAttention::Way& HeadAttention::way_of(ContextArray array) {
  switch (array) {
    case ContextArray::queries:
      return queries_;
    case ContextArray::keys:
      return keys_;
    case ContextArray::outputs:
      return outputs_;
    case ContextArray::d_outputs:
      return d_outputs_;
    case ContextArray::d_queries:
      return d_queries_;
    default:
      LOCKSTEP_CHECK(array == ContextArray::d_keys, "an array that is exchanged between tokens and heads");
      return d_keys_;
  }
}

ContextMove HeadAttention::exchange(bool backward, const ExchangePosition& place) {
  const ContextArray array = plan_.exchange(backward, place).array;
  Way& way = way_of(array);
  way.received = make_as(array);
  return {way.sent.in(), way.received.out(), nullptr};
}

void HeadAttention::exchanged(bool backward, const ExchangePosition& place) {
  way_of(plan_.exchange(backward, place).array).sent.reset();
}

}  // namespace lockstep::parallel
