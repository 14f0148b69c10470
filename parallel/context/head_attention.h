// The way whose ranks change from their tokens to their heads and back: Ulysses.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"
#include "parallel/context/context_attention.h"

namespace lockstep::parallel {

class HeadAttention final : public ContextAttention {
 public:
  HeadAttention(const ContextPlan& plan, const Workspace& workspace);

  void split(kernels::In qkv) override;
  void core(std::int32_t turn) override;
  void merge(std::int32_t turn) override;
  kernels::In output() const override { return output_.in(); }
  const Tensor& output_tensor() const override { return output_; }
  void forget() override;
  void give_up_output() override { output_.reset(); }

  void begin_backward(kernels::In d_o) override;
  void core_gradient(std::int32_t turn) override;
  void merge_gradients(std::int32_t /*turn*/) override {}
  void join(kernels::Out d_qkv) override;

  ContextMove exchange(bool backward, const workload::ExchangePlace& place) override;
  void exchanged(bool backward, const workload::ExchangePlace& place) override;

 private:
  // An array on its way: a part of the heads of own tokens for each rank, and then own heads of each rank's tokens.
  struct Way {
    Tensor sent;
    Tensor received;
  };
  Way& way_of(workload::ContextArray array);

  std::int64_t own_queries() const { return layer_.query_columns() / layer_.shape.ranks; }  // columns
  std::int64_t own_keys() const { return layer_.key_columns() / layer_.shape.ranks; }
  kernels::AttentionShape shape() const;
  Tensor make(std::int64_t elems) const;
  Tensor make_as(workload::ContextArray array) const { return make(layer_.elems(array)); }

  // Columns of each rank's heads, from a matrix of all heads (own tokens) to packed parts, and back. `arrays`: 2 of
  // keys and values, whose columns lie one behind the other in the matrix.
  struct Columns {
    std::int64_t first = 0;
    std::int64_t stride = 0;
    std::int64_t of_rank = 0;
    std::int64_t arrays = 1;
  };
  void spread(kernels::In matrix, const Columns& columns, const Tensor& parts) const;
  void collect(const Tensor& parts, const Columns& columns, kernels::Out matrix) const;
  // Tokens of each rank, from parts as they come to whole sequences, and back.
  void to_sequences(const Tensor& parts, std::int64_t columns, std::int64_t arrays, const Tensor& sequences) const;
  void from_sequences(const Tensor& sequences, std::int64_t columns, std::int64_t arrays, const Tensor& parts) const;

  const ContextPlan& plan_;
  const ContextLayer& layer_;
  const Workspace workspace_;
  Way queries_, keys_, outputs_, d_outputs_, d_queries_, d_keys_;
  Tensor q_, kv_, o_, lse_;  // of own heads, whole sequences: [batch, length, ...]
  Tensor output_;            // of own tokens
};

}  // namespace lockstep::parallel
