// The forms of context-parallel attention, and what they share: copies of rows, and the memory in which a rank keeps
// its tensors.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/error.h"
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
  Exchange begin_shift(bool backward, const workload::ExchangePosition& place, kernels::In d_o = {});
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

// Ranks keep their tokens: ring, zigzag, lightseq, and all-gather of keys (block_attention.cpp).
std::unique_ptr<ContextAttention> make_block_attention(const ContextPlan& plan, const Workspace& workspace);
// Ranks exchange their tokens for their heads and back: Ulysses (head_attention.cpp).
std::unique_ptr<ContextAttention> make_head_attention(const ContextPlan& plan, const Workspace& workspace);
// Ranks keep the scores of their tokens in memory (score_attention.cpp).
std::unique_ptr<ContextAttention> make_score_attention(const ContextPlan& plan, const Workspace& workspace);

}  // namespace lockstep::parallel
