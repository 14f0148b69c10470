#include "parallel/context/attention_forms.h"

#include <array>
#include <cstdint>
#include <memory>

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
    stages_of(ContextArray::queries).sent = make_as(ContextArray::queries);
    stages_of(ContextArray::keys).sent = make_as(ContextArray::keys);
    spread(qkv, {0, fused, own_queries(), 1}, stages_of(ContextArray::queries).sent);
    spread(qkv, {layer_.query_columns(), fused, own_keys(), 2}, stages_of(ContextArray::keys).sent);
  }
  void core(std::int32_t /*turn*/) override {
    q_ = make_as(ContextArray::queries);
    to_sequences(stages_of(ContextArray::queries).received, own_queries(), 1, q_);
    stages_of(ContextArray::queries).received.reset();
    kv_ = make_as(ContextArray::keys);
    to_sequences(stages_of(ContextArray::keys).received, own_keys(), 2, kv_);
    stages_of(ContextArray::keys).received.reset();
    o_ = make_as(ContextArray::outputs);
    lse_ = workspace_.memory.make(MemoryKind::activations, core::DType::f32, layer_.elems(ContextArray::sums));
    kernels::run(kernels::AttentionForward{.shape = shape(),
                                           .q = q_.in(),
                                           .k = kv_.in(0, kv_.elems() / 2),
                                           .v = kv_.in(kv_.elems() / 2, kv_.elems() / 2),
                                           .o = o_.out(),
                                           .lse = lse_.out()},
                 workspace_.where);
    stages_of(ContextArray::outputs).sent = make_as(ContextArray::outputs);
    from_sequences(o_, own_queries(), 1, stages_of(ContextArray::outputs).sent);
  }
  void merge(std::int32_t /*turn*/) override {
    output_ = make_as(ContextArray::outputs);
    collect(stages_of(ContextArray::outputs).received, {0, layer_.query_columns(), own_queries(), 1}, output_.out());
    stages_of(ContextArray::outputs).received.reset();
  }
  kernels::In output() const override { return output_.in(); }
  void forget() override {
    for (Tensor* const tensor : {&q_, &kv_, &o_, &lse_}) tensor->reset();
  }
  void give_up_output() override { output_.reset(); }

  void begin_backward(kernels::In d_o) override {
    stages_of(ContextArray::d_outputs).sent = make_as(ContextArray::d_outputs);
    spread(d_o, {0, layer_.query_columns(), own_queries(), 1}, stages_of(ContextArray::d_outputs).sent);
  }
  void core_gradient(std::int32_t /*turn*/) override {
    Tensor d_o = make_as(ContextArray::d_outputs);
    to_sequences(stages_of(ContextArray::d_outputs).received, own_queries(), 1, d_o);
    stages_of(ContextArray::d_outputs).received.reset();
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
    stages_of(ContextArray::d_queries).sent = make_as(ContextArray::d_queries);
    from_sequences(dq, own_queries(), 1, stages_of(ContextArray::d_queries).sent);
    dq.reset();
    stages_of(ContextArray::d_keys).sent = make_as(ContextArray::d_keys);
    from_sequences(d_kv, own_keys(), 2, stages_of(ContextArray::d_keys).sent);
  }
  void merge_gradients(std::int32_t /*turn*/) override {}
  void join(kernels::Out d_qkv) override {
    const std::int64_t fused = layer_.fused_columns();
    collect(stages_of(ContextArray::d_queries).received, {0, fused, own_queries(), 1}, d_qkv);
    stages_of(ContextArray::d_queries).received.reset();
    collect(stages_of(ContextArray::d_keys).received, {layer_.query_columns(), fused, own_keys(), 2}, d_qkv);
    stages_of(ContextArray::d_keys).received.reset();
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
  ExchangeStages& stages_of(ContextArray array) { return stages_.at(static_cast<std::size_t>(array)); }

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
  std::array<ExchangeStages, workload::kNumContextArrays> stages_;  // by ContextArray
  Tensor q_, kv_, o_, lse_;  // this rank's heads, whole sequences: [batch, length, ...]
  Tensor output_;            // this rank's tokens
};

}  // namespace

std::unique_ptr<ContextAttention> make_head_attention(const ContextPlan& plan, const Workspace& workspace) {
  return std::make_unique<HeadAttention>(plan, workspace);
}

}  // namespace lockstep::parallel
