#include "parallel/context/attention_forms.h"

#include <cstdint>
#include <memory>

#include "core/error.h"
#include "kernels/attention/attention.h"

namespace lockstep::parallel {
namespace {

using workload::ContextArray;
using workload::ExchangePosition;

// The form of context parallelism in which ranks exchange their tokens for their heads and back: Ulysses.
class HeadAttention final : public ContextAttention {
 public:
  HeadAttention(const ContextPlan& plan, const Workspace& workspace)
      : plan_(plan), layer_(plan.layer()), workspace_(workspace) {}

  void split(kernels::In qkv) override {
    const std::int64_t fused = layer_.fused_columns();
    queries_.sent = make_as(ContextArray::queries);
    keys_.sent = make_as(ContextArray::keys);
    spread(qkv, {0, fused, own_queries(), 1}, queries_.sent);
    spread(qkv, {layer_.query_columns(), fused, own_keys(), 2}, keys_.sent);
  }
  void core(std::int32_t /*turn*/) override {
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
  void merge(std::int32_t /*turn*/) override {
    output_ = make_as(ContextArray::outputs);
    collect(outputs_.received, {0, layer_.query_columns(), own_queries(), 1}, output_.out());
    outputs_.received.reset();
  }
  kernels::In output() const override { return output_.in(); }
  void forget() override {
    for (Tensor* const tensor : {&q_, &kv_, &o_, &lse_}) tensor->reset();
  }
  void give_up_output() override { output_.reset(); }

  void begin_backward(kernels::In d_o) override {
    d_outputs_.sent = make_as(ContextArray::d_outputs);
    spread(d_o, {0, layer_.query_columns(), own_queries(), 1}, d_outputs_.sent);
  }
  void core_gradient(std::int32_t /*turn*/) override {
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
  void merge_gradients(std::int32_t /*turn*/) override {}
  void join(kernels::Out d_qkv) override {
    const std::int64_t fused = layer_.fused_columns();
    collect(d_queries_.received, {0, fused, own_queries(), 1}, d_qkv);
    d_queries_.received.reset();
    collect(d_keys_.received, {layer_.query_columns(), fused, own_keys(), 2}, d_qkv);
    d_keys_.received.reset();
  }

  Exchange exchange(bool backward, const workload::ExchangePosition& place) override {
    const ContextArray array = plan_.exchange(backward, place).array;
    ExchangeStages& stages = stages_of(array);
    stages.received = make_as(array);
    return {stages.sent.in(), stages.received.out(), nullptr};
  }
  void exchanged(bool backward, const workload::ExchangePosition& place) override {
    stages_of(plan_.exchange(backward, place).array).sent.reset();
  }

 private:
  // Stages of an array in an exchange: for each rank a part of the heads of this rank's tokens, then this rank's heads
  // of each rank's tokens.
  struct ExchangeStages {
    Tensor sent;
    Tensor received;
  };
  ExchangeStages& stages_of(workload::ContextArray array) {
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

  std::int64_t own_queries() const { return layer_.query_columns() / layer_.shape.ranks; }  // columns
  std::int64_t own_keys() const { return layer_.key_columns() / layer_.shape.ranks; }
  kernels::AttentionShape shape() const {
    return {.batch = layer_.batch,
            .heads = layer_.heads / layer_.shape.ranks,
            .queries = layer_.length,
            .keys = layer_.length,
            .head_columns = layer_.head_columns,
            .causal = layer_.shape.causal,
            .kv_heads = layer_.kv_heads / layer_.shape.ranks};
  }
  Tensor make(std::int64_t elems) const { return workspace_.memory.make(MemoryKind::activations, layer_.dtype, elems); }
  Tensor make_as(workload::ContextArray array) const { return make(layer_.elems(array)); }

  // Copies the columns of each rank's heads from a matrix of all heads (this rank's tokens) to packed parts, or back.
  // `arrays` is 2 for keys and values, whose columns are contiguous in the matrix.
  struct ColumnRanges {
    std::int64_t first = 0;
    std::int64_t stride = 0;
    std::int64_t of_rank = 0;
    std::int64_t arrays = 1;
  };
  void spread(kernels::In matrix, const ColumnRanges& columns, const Tensor& parts) const {
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
  void collect(const Tensor& parts, const ColumnRanges& columns, kernels::Out matrix) const {
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
  // Copies the tokens of each rank from received parts to whole sequences, or back.
  // Parts are [rank, array, batch, tokens, columns], sequences [array, batch, rank, tokens, columns].
  void to_sequences(const Tensor& parts, std::int64_t columns, std::int64_t arrays, const Tensor& sequences) const {
    const std::int64_t block = layer_.tokens() * columns;
    const std::int64_t blocks = arrays * layer_.batch;
    for (std::int64_t b = 0; b < blocks; ++b) {
      copy_matrix(workspace_.where, layer_.shape.ranks, block, parts.in(), {b * block, blocks * block}, sequences.out(),
                  {b * layer_.shape.ranks * block});
    }
  }
  void from_sequences(const Tensor& sequences, std::int64_t columns, std::int64_t arrays, const Tensor& parts) const {
    const std::int64_t block = layer_.tokens() * columns;
    const std::int64_t blocks = arrays * layer_.batch;
    for (std::int64_t b = 0; b < blocks; ++b) {
      copy_matrix(workspace_.where, layer_.shape.ranks, block, sequences.in(), {b * layer_.shape.ranks * block},
                  parts.out(), {b * block, blocks * block});
    }
  }

  const ContextPlan& plan_;
  const ContextLayer& layer_;
  const Workspace workspace_;
  ExchangeStages queries_, keys_, outputs_, d_outputs_, d_queries_, d_keys_;
  Tensor q_, kv_, o_, lse_;  // this rank's heads, whole sequences: [batch, length, ...]
  Tensor output_;            // this rank's tokens
};

}  // namespace

std::unique_ptr<ContextAttention> make_head_attention(const ContextPlan& plan, const Workspace& workspace) {
  return std::make_unique<HeadAttention>(plan, workspace);
}

}  // namespace lockstep::parallel
