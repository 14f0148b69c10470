#include "parallel/context/attention_forms.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/gemm/gemm.h"
#include "kernels/residual/residual.h"
#include "kernels/softmax/softmax.h"
#include "parallel/parameters/device_memory.h"

namespace lockstep::parallel {
namespace {

using Moment = workload::ContextMoment;

// The form of context parallelism that keeps scores in memory: keys are passed around the ring, then values (Li et al.
// 2021, arXiv:2105.13120, section 3.2, "ring self-attention"). A causal mask, which the paper's models lack, is added
// to the scores. As many key heads as query heads.
class ScoreAttention final : public ContextAttention {
 public:
  ScoreAttention(const ContextPlan& plan, const Workspace& workspace)
      : plan_(plan), layer_(plan.layer()), workspace_(workspace), shelves_(plan, workspace) {
    LOCKSTEP_CHECK(layer_.kv_heads == layer_.heads, "colossal has as many key heads as query heads");
  }

  void split(kernels::In qkv) override {
    const std::int64_t row = layer_.query_columns();
    shelves_.held.put(own(Array::queries), by_heads(qkv, 0, layer_.fused_columns()));
    shelves_.held.put(own(Array::keys_only), by_heads(qkv, row, layer_.fused_columns()));
    shelves_.held.put(own(Array::values_only), by_heads(qkv, 2 * row, layer_.fused_columns()));
  }
  void core(std::int32_t turn) override {
    shelves_.give_up(false, Moment::blocks_begin, turn);
    const workload::ContextBlock& block = plan_.turn(false, turn).blocks.front();
    const std::int64_t columns = layer_.head_columns;
    if (block.work == workload::ContextWork::scores) {
      if (!scores_.given()) scores_ = make(heads() * tokens() * layer_.length);
      const float alpha = 1 / std::sqrt(static_cast<float>(columns));
      const Tensor block_scores =
          product({shelves_.held.at(own(Array::queries))}, {shelves_.held.at({Array::keys_only, block.keys_of}), true},
                  tokens(), columns, tokens(), alpha);
      put_block(block_scores, block.keys_of, scores_);
      if (turn + 1 != layer_.shape.ranks) return;
      if (layer_.shape.causal) mask_scores();
      kernels::run(
          kernels::SoftmaxForward{
              .rows = heads() * tokens(), .columns = layer_.length, .x = scores_.in(), .y = scores_.out()},
          workspace_.where);
      return;
    }
    Tensor term = product({block_of(scores_, block.keys_of)}, {shelves_.held.at({Array::values_only, block.keys_of})},
                          tokens(), tokens(), columns);
    add_to(own(Array::outputs), std::move(term));
    if (turn + 1 != plan_.list().turns()) return;
    output_ = make(layer_.elems(Array::outputs));
    by_tokens(shelves_.held.take(own(Array::outputs)), output_.out(), 0, layer_.query_columns());
    shelves_.give_up(false, Moment::blocks_end, turn);
  }
  void merge(std::int32_t /*turn*/) override {}
  kernels::In output() const override { return output_.in(); }
  void forget() override {
    scores_.reset();
    for (const Array array : {Array::queries, Array::keys_only, Array::values_only}) shelves_.held.take(own(array));
  }
  void give_up_output() override { output_.reset(); }

  void begin_backward(kernels::In d_o) override { d_o_ = by_heads(d_o, 0, layer_.query_columns()); }
  void core_gradient(std::int32_t turn) override {
    shelves_.give_up(true, Moment::blocks_begin, turn);
    const workload::ContextBlock& block = plan_.turn(true, turn).blocks.front();
    const std::int64_t columns = layer_.head_columns;
    if (block.work == workload::ContextWork::values) {
      if (!d_scores_.given()) d_scores_ = make(heads() * tokens() * layer_.length);
      const Tensor& values = shelves_.held.at({Array::values_only, block.keys_of});
      put_block(product({d_o_}, {values, true}, tokens(), columns, tokens()), block.keys_of, d_scores_);
      add_to({Array::d_values_only, block.keys_of},
             product({block_of(scores_, block.keys_of), true}, {d_o_}, tokens(), tokens(), columns));
      if (turn != layer_.shape.ranks) return;
      d_o_.reset();
      kernels::run(kernels::SoftmaxBackward{.rows = heads() * tokens(),
                                            .columns = layer_.length,
                                            .y = scores_.in(),
                                            .dy = d_scores_.in(),
                                            .dx = d_scores_.out()},
                   workspace_.where);
      scores_.reset();
      return;
    }
    const float alpha = 1 / std::sqrt(static_cast<float>(columns));
    const Tensor d_block = block_of(d_scores_, block.keys_of);
    add_to(own(Array::d_queries), product({d_block}, {shelves_.held.at({Array::keys_only, block.keys_of})}, tokens(),
                                          tokens(), columns, alpha));
    add_to({Array::d_keys_only, block.keys_of},
           product({d_block, true}, {shelves_.held.at(own(Array::queries))}, tokens(), tokens(), columns, alpha));
    if (turn == 0) d_scores_.reset();
    shelves_.give_up(true, Moment::blocks_end, turn);
  }
  void merge_gradients(std::int32_t turn) override {
    shelves_.take_sums(turn, [&](const Shelf::Key& key, Tensor arrived) { add_to(key, std::move(arrived)); });
  }
  void join(kernels::Out d_qkv) override {
    const std::int64_t row = layer_.query_columns();
    const std::int64_t fused = layer_.fused_columns();
    by_tokens(shelves_.held.take(own(Array::d_queries)), d_qkv, 0, fused);
    by_tokens(shelves_.held.take(own(Array::d_keys_only)), d_qkv, row, fused);
    by_tokens(shelves_.held.take(own(Array::d_values_only)), d_qkv, 2 * row, fused);
    for (const Array array : {Array::queries, Array::keys_only, Array::values_only}) shelves_.held.take(own(array));
  }

  Exchange exchange(bool backward, const workload::ExchangePosition& place) override {
    return shelves_.begin_shift(backward, place);
  }
  void exchanged(bool backward, const workload::ExchangePosition& place) override {
    shelves_.end_shift(backward, place);
  }

 private:
  using Array = workload::ContextArray;

  std::int64_t heads() const { return layer_.batch * layer_.heads; }  // heads of all sequences
  std::int64_t tokens() const { return layer_.tokens(); }
  Tensor make(std::int64_t elems) const { return workspace_.memory.make(MemoryKind::activations, layer_.dtype, elems); }
  Shelf::Key own(Array array) const { return {array, layer_.rank}; }

  // Converts rows [sequence, token, heads x head_columns], `stride` apart from `first` on, to [sequence, head, token,
  // column], or back.
  Tensor by_heads(kernels::In rows, std::int64_t first, std::int64_t stride) const {
    const std::int64_t columns = layer_.head_columns;
    Tensor result = make(heads() * tokens() * columns);
    for (std::int64_t head = 0; head < heads(); ++head) {
      const std::int64_t at = head / layer_.heads * tokens() * stride + head % layer_.heads * columns;
      copy_matrix(workspace_.where, tokens(), columns, rows, {first + at, stride}, result.out(),
                  {head * tokens() * columns});
    }
    return result;
  }
  void by_tokens(const Tensor& of_heads, kernels::Out rows, std::int64_t first, std::int64_t stride) const {
    const std::int64_t columns = layer_.head_columns;
    for (std::int64_t head = 0; head < heads(); ++head) {
      const std::int64_t at = head / layer_.heads * tokens() * stride + head % layer_.heads * columns;
      copy_matrix(workspace_.where, tokens(), columns, of_heads.in(), {head * tokens() * columns}, rows,
                  {first + at, stride});
    }
  }
  // Writes one rank's keys' columns into a matrix [head, token, length].
  void put_block(const Tensor& block, std::int32_t owner, const Tensor& scores) const {
    copy_matrix(workspace_.where, heads() * tokens(), tokens(), block.in(), {}, scores.out(),
                {owner * tokens(), layer_.length});
  }
  Tensor block_of(const Tensor& scores, std::int32_t owner) const {
    Tensor block = make(heads() * tokens() * tokens());
    copy_matrix(workspace_.where, heads() * tokens(), tokens(), scores.in(), {owner * tokens(), layer_.length},
                block.out(), {});
    return block;
  }
  // One product per head. `a` and `b` are used as stored, or transposed.
  struct ScoreOperand {
    const Tensor& tensor;
    bool transposed = false;
  };
  Tensor product(const ScoreOperand& a, const ScoreOperand& b, std::int64_t rows, std::int64_t inner,
                 std::int64_t columns, float alpha = 1) const {
    Tensor result = make(heads() * rows * columns);
    kernels::run(kernels::GemmBatched{.batch = heads(),
                                      .m = rows,
                                      .n = columns,
                                      .k = inner,
                                      .transpose_a = a.transposed,
                                      .transpose_b = b.transposed,
                                      .alpha = alpha,
                                      .a = a.tensor.in(),
                                      .b = b.tensor.in(),
                                      .c = result.out()},
                 workspace_.where);
    return result;
  }
  // Adds minus infinity to the scores of keys after their query, as every score is computed.
  void mask_scores() const {
    std::vector<float> values;
    for (std::int64_t query = 0; query < tokens(); ++query) {
      const std::int64_t seen = layer_.rank * tokens() + query + 1;
      values.insert(values.end(), static_cast<std::size_t>(seen), 0.0F);
      values.insert(values.end(), static_cast<std::size_t>(layer_.length - seen),
                    -std::numeric_limits<float>::infinity());
    }
    const Tensor mask = make(tokens() * layer_.length);
    write_rounded(workspace_.memory.device(), mask.out(), values);
    for (std::int64_t head = 0; head < heads(); ++head) {
      const std::int64_t at = head * mask.elems();
      kernels::run(kernels::ResidualAdd{.count = mask.elems(),
                                        .a = scores_.in(at, mask.elems()),
                                        .b = mask.in(),
                                        .y = scores_.out(at, mask.elems())},
                   workspace_.where);
    }
  }
  void add_to(const Shelf::Key& key, Tensor term) {
    const Tensor* const sum = shelves_.held.find(key);
    if (sum == nullptr) {
      shelves_.held.put(key, std::move(term));
      return;
    }
    kernels::run(kernels::ResidualAdd{.count = sum->elems(), .a = sum->in(), .b = term.in(), .y = sum->out()},
                 workspace_.where);
  }

  const ContextPlan& plan_;
  const ContextLayer& layer_;
  const Workspace workspace_;
  ContextShelves shelves_;
  Tensor scores_;    // [head, token, length], then the attention weights
  Tensor d_scores_;  // likewise
  Tensor o_, d_o_;   // [head, token, column]
  Tensor output_;    // [token, head, column]
};

}  // namespace

std::unique_ptr<ContextAttention> make_score_attention(const ContextPlan& plan, const Workspace& workspace) {
  return std::make_unique<ScoreAttention>(plan, workspace);
}

}  // namespace lockstep::parallel
