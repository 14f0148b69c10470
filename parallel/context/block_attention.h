// The ways whose ranks keep their tokens: ring, zigzag, lightseq, and keys gathered of all.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "kernels/attention/attention.h"
#include "parallel/context/context_attention.h"
#include "parallel/context/shelf.h"

namespace lockstep::parallel {

class BlockAttention final : public ContextAttention {
 public:
  BlockAttention(const ContextPlan& plan, const Workspace& workspace);

  void split(kernels::In qkv) override;
  void core(std::int32_t turn) override;
  void merge(std::int32_t turn) override;
  kernels::In output() const override { return output_tensor().in(); }
  const Tensor& output_tensor() const override { return held_.at(own(Array::outputs)); }
  void forward_ends(bool keeps) override;
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

  // A block's rows in its owners' arrays.
  struct Rows {
    std::int64_t first_query, queries, all_queries;  // of a sequence
    std::int64_t first_key, keys, all_keys;
    bool has_all_queries() const { return queries == all_queries; }
    bool has_all_keys() const { return keys == all_keys; }
  };
  // One sequence of a block, or all sequences at once where it has all rows of them.
  struct Part {
    std::int64_t sequence, batch;
  };

  Key own(Array array) const { return {array, layer_.rank}; }
  Rows rows_of(const workload::ContextBlock& block) const;
  std::vector<Part> parts_of(const Rows& rows) const;
  kernels::AttentionShape shape_of(const workload::ContextBlock& block, const Rows& rows, const Part& part) const;
  Tensor make(Array array, std::int64_t elems) const;
  kernels::In queries_in(const Tensor& array, const Rows& rows, const Part& part) const;
  kernels::Out queries_out(const Tensor& array, const Rows& rows, const Part& part) const;
  std::int64_t key_place(const Rows& rows, const Part& part) const;
  std::int64_t sums_place(const Rows& rows, const Part& part) const;

  // Whether none of the range had a result before; from now on it has.
  bool begin(const Key& key, const workload::ChunkRange& range);
  bool has_begun(const Key& key) const { return begun_.count(key) > 0; }

  void forward_block(const workload::ContextBlock& block);
  void forward_part(const workload::ContextBlock& block, const Rows& rows, const Part& part, bool is_first);
  void backward_block(const workload::ContextBlock& block);
  void backward_part(const workload::ContextBlock& block, const Rows& rows, const Part& part, bool first_of_queries,
                     bool first_of_keys);
  const Tensor& gradient_tensor(const Key& key, bool covers_all);
  void add(kernels::In term, kernels::Out sum) const;

  // ---- keys of all, in the order of the sequence and as ranks have them
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
  std::map<Key, std::vector<bool>> begun_;  // chunks that have a result; of the thread of kernels
  Tensor gathered_;                         // keys as a gather has them: rank after rank
  Tensor to_reduce_;                        // their gradients, likewise
};

}  // namespace lockstep::parallel
