// The form of context parallelism that keeps scores in memory: keys are passed around the ring, then values (Li et al.
// 2021, arXiv:2105.13120, section 3.2, "ring self-attention"). No mask, and as many key heads as query heads.
#pragma once

#include <cstdint>

#include "parallel/context/context_attention.h"
#include "parallel/context/shelf.h"

namespace lockstep::parallel {

class ScoreAttention final : public ContextAttention {
 public:
  ScoreAttention(const ContextPlan& plan, const Workspace& workspace);

  void split(kernels::In qkv) override;
  void core(std::int32_t turn) override;
  void merge(std::int32_t /*turn*/) override {}
  kernels::In output() const override { return output_.in(); }
  const Tensor& output_tensor() const override { return output_; }
  void forget() override;
  void give_up_output() override { output_.reset(); }

  void begin_backward(kernels::In d_o) override;
  void core_gradient(std::int32_t turn) override;
  void merge_gradients(std::int32_t turn) override;
  void join(kernels::Out d_qkv) override;

  ContextMove exchange(bool backward, const workload::ExchangePlace& place) override {
    return shelves_.begin_shift(backward, place);
  }
  void exchanged(bool backward, const workload::ExchangePlace& place) override { shelves_.end_shift(backward, place); }

 private:
  using Array = workload::ContextArray;

  std::int64_t heads() const { return layer_.batch * layer_.heads; }  // heads of all sequences
  std::int64_t tokens() const { return layer_.tokens(); }
  Tensor make(std::int64_t elems) const;
  Shelf::Key own(Array array) const { return {array, layer_.rank}; }

  // Converts rows [sequence, token, heads x head_columns], `stride` apart from `first` on, to [sequence, head, token,
  // column], or back.
  Tensor by_heads(kernels::In rows, std::int64_t first, std::int64_t stride) const;
  void by_tokens(const Tensor& of_heads, kernels::Out rows, std::int64_t first, std::int64_t stride) const;
  // Writes one rank's keys' columns into a matrix [head, token, length].
  void put_block(const Tensor& block, std::int32_t owner, const Tensor& scores) const;
  Tensor block_of(const Tensor& scores, std::int32_t owner) const;
  // One product per head. `a` and `b` are used as stored, or transposed.
  struct Operand {
    const Tensor& tensor;
    bool transposed = false;
  };
  Tensor product(const Operand& a, const Operand& b, std::int64_t rows, std::int64_t inner, std::int64_t columns,
                 float alpha = 1) const;
  void add_to(const Shelf::Key& key, Tensor term);

  const ContextPlan& plan_;
  const ContextLayer& layer_;
  const Workspace workspace_;
  ContextShelves shelves_;
  Tensor scores_;    // [head, token, length], then the attention weights
  Tensor d_scores_;  // likewise
  Tensor o_, d_o_;   // [head, token, column]
  Tensor output_;    // [token, head, column]
};

}  // namespace lockstep::parallel
