// The forms of context parallelism in which ranks keep their tokens: ring, zigzag, lightseq, and all-gather of keys.
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"
#include "parallel/context/context_attention.h"
#include "parallel/context/shelf.h"
#include "workload/context_layer.h"

namespace lockstep::parallel {

class BlockAttention final : public ContextAttention {
 public:
  BlockAttention(const ContextPlan& plan, const Workspace& workspace);

  void split(kernels::In qkv) override;
  void core(std::int32_t turn) override;
  void merge(std::int32_t turn) override;
  kernels::In output() const override { return output_tensor().in(); }
  const Tensor& output_tensor() const override { return held_.at(own(Array::outputs)); }
  void forget() override;
  void give_up_output() override { held_.take(own(Array::outputs)); }

  void begin_backward(kernels::In d_o) override { d_o_ = d_o; }
  void core_gradient(std::int32_t turn) override;
  void merge_gradients(std::int32_t turn) override;
  void join(kernels::Out d_qkv) override;

  ContextMove exchange(bool backward, const workload::ExchangePlace& place) override;
  void exchanged(bool backward, const workload::ExchangePlace& place) override;

 private:
  using Array = workload::ContextArray;
  using Key = Shelf::Key;

  using Moment = workload::ContextMoment;
  using Rows = workload::ContextRows;

  // Sequences that one call of a block's kernel computes.
  struct Part {
    std::int64_t sequence, batch;
  };

  Key own(Array array) const { return {array, layer_.rank}; }
  // Calls call(rows, part) for each call of the block's kernel.
  template <class Call>
  void for_parts(const workload::ContextBlock& block, const Call& call) const;
  Tensor make(Array array, std::int64_t elems) const;
  kernels::In queries_in(const Tensor& array, const Rows& rows, const Part& part) const;
  kernels::Out queries_out(const Tensor& array, const Rows& rows, const Part& part) const;
  std::int64_t key_place(const Rows& rows, const Part& part) const;
  std::int64_t sums_place(const Rows& rows, const Part& part) const;

  void forward_block(const workload::ContextBlock& block);
  void forward_part(const workload::ContextBlock& block, const Rows& rows, const Part& part);
  void backward_block(const workload::ContextBlock& block);
  void backward_part(const workload::ContextBlock& block, const Rows& rows, const Part& part);
  const Tensor& gradient_tensor(const Key& key, bool covers_all);
  void add(kernels::In term, kernels::Out sum) const;

  // ---- gathered keys, in sequence order and as ranks have them
  void order_keys();
  void unorder_gradients();
  template <class Visit>
  void for_chunks_of_all(const Visit& visit) const;

  const ContextPlan& plan_;
  const ContextLayer& layer_;
  const Workspace workspace_;
  kernels::In d_o_;
  ContextShelves shelves_;
  Shelf& held_ = shelves_.held;
  Tensor gathered_;   // in the order of the gather: rank by rank
  Tensor to_reduce_;  // their gradients, in the same order
};

}  // namespace lockstep::parallel
