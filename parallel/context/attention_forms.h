// The forms of context-parallel attention, and the memory in which a rank keeps its rows.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "kernels/attention/attention.h"
#include "kernels/base/context.h"
#include "kernels/base/view.h"
#include "kernels/copy/copy.h"
#include "parallel/context/context_attention.h"
#include "parallel/memory/memory.h"
#include "workload/context_layer.h"
#include "workload/context_list.h"

namespace lockstep::parallel {

// Copies of rows between the arrays of context-parallel attention.

// Part of a view, from element `first` on.
inline kernels::In from(kernels::In view, std::int64_t first, std::int64_t elems) {
  const auto* const at = view.as<std::byte>() + static_cast<std::int64_t>(core::size_of(view.dtype)) * first;
  return {at, view.dtype, elems};
}
inline kernels::Out from(kernels::Out view, std::int64_t first, std::int64_t elems) {
  auto* const at = view.as<std::byte>() + static_cast<std::int64_t>(core::size_of(view.dtype)) * first;
  return {at, view.dtype, elems};
}

// A matrix within a larger one: its first element and its row stride.
struct Submatrix {
  std::int64_t first = 0;
  std::int64_t stride = 0;  // 0: packed
};

// Copies a matrix of `rows` x `columns` elements.
inline void copy_matrix(const kernels::Context& where, std::int64_t rows, std::int64_t columns, kernels::In source,
                        const Submatrix& source_place, kernels::Out target, const Submatrix& target_place) {
  kernels::CopyRows copy{
      .rows = rows, .columns = columns, .from_stride = source_place.stride, .to_stride = target_place.stride};
  copy.from = from(source, source_place.first, (rows - 1) * copy.from_row() + columns);
  copy.to = from(target, target_place.first, (rows - 1) * copy.to_row() + columns);
  kernels::run(copy, where);
}

// Tensors of a rank's context-parallel attention, by array and owner. Kernels and exchanges use it from threads of
// their own; a tensor's address is stable until it is taken.

class Shelf {
 public:
  struct Key {
    workload::ContextArray array;
    std::int32_t owner;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  const Tensor* find(const Key& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = tensors_.find(key);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  const Tensor& at(const Key& key) const {
    const Tensor* const found = find(key);
    LOCKSTEP_CHECK(found != nullptr, "an array that an exchange of the list has received");
    return *found;
  }
  const Tensor& put(const Key& key, Tensor tensor) {
    const std::lock_guard lock(mutex_);
    return tensors_.insert_or_assign(key, std::move(tensor)).first->second;
  }
  // Returns an empty tensor if it is absent.
  Tensor take(const Key& key) {
    const std::lock_guard lock(mutex_);
    auto node = tensors_.extract(key);
    return node.empty() ? Tensor() : std::move(node.mapped());
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    tensors_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::map<Key, Tensor> tensors_;
};

// The arrays of a rank that keeps its tokens, as they are received, used and freed.
class ContextShelves {
 public:
  ContextShelves(const ContextPlan& plan, const Workspace& workspace) : plan_(plan), workspace_(workspace) {}

  Shelf held;     // operands, and partial results
  Shelf arrived;  // results that are to be merged

  // A shift of the list: provides its buffers, and updates the state after it. A gradient to which no block here has
  // added is sent as zeros. `d_o`: gradient of this rank's outputs, which is stored elsewhere.
  ContextMove begin_shift(bool backward, const workload::ExchangePosition& place, kernels::In d_o = {});
  void end_shift(bool backward, const workload::ExchangePosition& place);
  // Frees operands of other ranks that have been used and passed on by this moment of a turn.
  void give_up(bool backward, workload::ContextMoment moment, std::int32_t turn);
  // Calls visit(key, tensor) for each sum received among the turn's results.
  template <class Visit>
  void take_sums(std::int32_t turn, const Visit& visit) {
    for (const workload::ContextExchange& exchange : plan_.turn(true, turn).results) {
      if (exchange.comm != schedules::Comm::shift) continue;  // a reduction already has the whole sum
      for (const workload::ContextMessage& receive : exchange.receives) {
        const Shelf::Key key{exchange.received, receive.owner};
        visit(key, arrived.take(key));
      }
    }
  }

 private:
  const ContextPlan& plan_;
  const Workspace workspace_;
  Shelf arriving_;  // in exchanges in flight
};

// The forms of context parallelism in which ranks keep their tokens: ring, zigzag, lightseq, and all-gather of keys.

class BlockAttention final : public ContextAttention {
 public:
  BlockAttention(const ContextPlan& plan, const Workspace& workspace);

  void split(kernels::In qkv) override;
  void core(std::int32_t turn) override;
  void merge(std::int32_t turn) override;
  kernels::In output() const override { return held_.at(own(Array::outputs)).in(); }
  void forget() override;
  void give_up_output() override { held_.take(own(Array::outputs)); }

  void begin_backward(kernels::In d_o) override { d_o_ = d_o; }
  void core_gradient(std::int32_t turn) override;
  void merge_gradients(std::int32_t turn) override;
  void join(kernels::Out d_qkv) override;

  ContextMove exchange(bool backward, const workload::ExchangePosition& place) override;
  void exchanged(bool backward, const workload::ExchangePosition& place) override;

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

// The form of context parallelism in which ranks exchange their tokens for their heads and back: Ulysses.

class HeadAttention final : public ContextAttention {
 public:
  HeadAttention(const ContextPlan& plan, const Workspace& workspace);

  void split(kernels::In qkv) override;
  void core(std::int32_t turn) override;
  void merge(std::int32_t turn) override;
  kernels::In output() const override { return output_.in(); }
  void forget() override;
  void give_up_output() override { output_.reset(); }

  void begin_backward(kernels::In d_o) override;
  void core_gradient(std::int32_t turn) override;
  void merge_gradients(std::int32_t /*turn*/) override {}
  void join(kernels::Out d_qkv) override;

  ContextMove exchange(bool backward, const workload::ExchangePosition& place) override;
  void exchanged(bool backward, const workload::ExchangePosition& place) override;

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

// The form of context parallelism that keeps scores in memory: keys are passed around the ring, then values (Li et al.
// 2021, arXiv:2105.13120, section 3.2, "ring self-attention"). A causal mask, which the paper's models lack, is added
// to the scores. As many key heads as query heads.

class ScoreAttention final : public ContextAttention {
 public:
  ScoreAttention(const ContextPlan& plan, const Workspace& workspace);

  void split(kernels::In qkv) override;
  void core(std::int32_t turn) override;
  void merge(std::int32_t /*turn*/) override {}
  kernels::In output() const override { return output_.in(); }
  void forget() override;
  void give_up_output() override { output_.reset(); }

  void begin_backward(kernels::In d_o) override;
  void core_gradient(std::int32_t turn) override;
  void merge_gradients(std::int32_t turn) override;
  void join(kernels::Out d_qkv) override;

  ContextMove exchange(bool backward, const workload::ExchangePosition& place) override {
    return shelves_.begin_shift(backward, place);
  }
  void exchanged(bool backward, const workload::ExchangePosition& place) override {
    shelves_.end_shift(backward, place);
  }

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
  void mask_scores() const;
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
