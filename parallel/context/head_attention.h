// The form of context parallelism in which ranks exchange their tokens for their heads and back: Ulysses.
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
  // Stages of an array in an exchange: for each rank a part of the heads of this rank's tokens, then this rank's heads
  // of each rank's tokens.
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

  // Copies the columns of each rank's heads from a matrix of all heads (this rank's tokens) to packed parts, or back.
  // `arrays` is 2 for keys and values, whose columns are contiguous in the matrix.
  struct Columns {
    std::int64_t first = 0;
    std::int64_t stride = 0;
    std::int64_t of_rank = 0;
    std::int64_t arrays = 1;
  };
  void spread(kernels::In matrix, const Columns& columns, const Tensor& parts) const;
  void collect(const Tensor& parts, const Columns& columns, kernels::Out matrix) const;
  // Copies the tokens of each rank from received parts to whole sequences, or back.
  void to_sequences(const Tensor& parts, std::int64_t columns, std::int64_t arrays, const Tensor& sequences) const;
  void from_sequences(const Tensor& sequences, std::int64_t columns, std::int64_t arrays, const Tensor& parts) const;

  const ContextPlan& plan_;
  const ContextLayer& layer_;
  const Workspace workspace_;
  Way queries_, keys_, outputs_, d_outputs_, d_queries_, d_keys_;
  Tensor q_, kv_, o_, lse_;  // this rank's heads, whole sequences: [batch, length, ...]
  Tensor output_;            // this rank's tokens
};

}  // namespace lockstep::parallel
