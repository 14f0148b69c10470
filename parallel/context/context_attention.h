// The attention of one layer and microbatch on one context-parallel rank, following its list (workload/context_list.h):
// the computation on tensors for each piece of the step model. Pieces are the operations of workload/operations.h of
// kind split_heads, exchange_context, core and merge_context; for an exchange this provides the buffers, and the caller
// moves the data.
//
//   forward    split_heads; for each turn its operands, core, merge_context of the previous turn, its results; finally
//              merge_context of the last turn
//   backward   turns in reverse, likewise; then split_heads, which joins the gradients
//
// Kernels and exchanges may be called from different threads, one kernel and one exchange at a time, if the recipe's
// order between them is kept. Tensors are [batch, tokens, heads, head_columns]; tokens are one rank's, in the order of
// its chunks. Partial outputs are merged, and gradients of blocks added, in the dtype of activations: a result from n
// blocks has n roundings instead of one and differs from one rank's by at most n + 1 units in the last place of the
// largest term.
#pragma once

#include <cstdint>
#include <memory>

#include "collectives/collective.h"
#include "core/dtype.h"
#include "kernels/base/view.h"
#include "parallel/layers/layers.h"
#include "workload/context_layer.h"
#include "workload/context_list.h"
#include "workload/operations.h"

namespace lockstep::parallel {

using workload::ContextLayer;

// A layer's list, with the data that each exchange moves between each pair of ranks.
class ContextPlan {
 public:
  explicit ContextPlan(const ContextLayer& layer);
  const ContextLayer& layer() const { return layer_; }
  const workload::ContextList& list() const { return list_; }
  const workload::ContextSides& sides() const { return list_.of_rank[static_cast<std::size_t>(layer_.rank)]; }
  const workload::ContextTurn& turn(bool backward, std::int32_t turn) const {
    return list_.turn(layer_.rank, backward, turn);
  }
  // This rank's part of an exchange.
  const workload::ContextExchange& exchange(bool backward, const workload::ExchangePosition& place) const;
  // For a shift, in bytes.
  std::shared_ptr<const collectives::CountMatrix> bytes_of_pairs(bool backward,
                                                                 const workload::ExchangePosition& place) const;

 private:
  using Matrices = std::vector<std::shared_ptr<const collectives::CountMatrix>>;  // by ExchangePosition::number()
  const ContextLayer layer_;
  const workload::ContextList list_;
  std::array<Matrices, 2> matrices_;  // forward, backward
};

class ContextAttention {
 public:
  virtual ~ContextAttention() = default;

  // `qkv`: [rows, queries | keys | values] of this rank's tokens.
  virtual void split(kernels::In qkv) = 0;
  virtual void core(std::int32_t turn) = 0;
  virtual void merge(std::int32_t turn) = 0;
  virtual kernels::In output() const = 0;  // [rows, heads, head_columns], after all turns are merged
  // Frees everything but the output, if there is no backward or the forward is recomputed before it.
  virtual void forget() = 0;
  virtual void give_up_output() = 0;

  // d_o: the output's gradient, which must stay valid until join().
  virtual void begin_backward(kernels::In d_o) = 0;
  virtual void core_gradient(std::int32_t turn) = 0;
  virtual void merge_gradients(std::int32_t turn) = 0;
  virtual void join(kernels::Out d_qkv) = 0;  // frees everything but the output

  virtual Exchange exchange(bool backward, const workload::ExchangePosition& place) = 0;
  virtual void exchanged(bool backward, const workload::ExchangePosition& place) = 0;
};

// The arguments must outlive the result.
std::unique_ptr<ContextAttention> make_context_attention(const ContextPlan& plan, const Workspace& workspace);

}  // namespace lockstep::parallel
