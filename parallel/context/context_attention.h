// The attention of one layer and microbatch on one context-parallel rank, as its list has it (workload/context_list.h):
// what each piece of the step model does with tensors. Pieces are the operations of workload/operations.h of kind
// split_heads, exchange_context, core and merge_context; of an exchange this gives the buffers, and others move them.
//
//   forward    split_heads; for each turn its operands, core, merge_context of the turn before, its results; at the end
//              merge_context of the last
//   backward   turns in reverse, likewise; then split_heads, which joins the gradients
//
// Kernels and exchanges may be called from different threads, a kernel's and an exchange's at a time, if the recipe's
// order between them is kept. Tensors are [batch, tokens, heads, head_columns]; tokens are a rank's, in the order of
// its chunks. Partial outputs are merged, and gradients of blocks added, in the dtype of activations: a result that
// comes of n blocks has n roundings in place of one, so it differs from one rank's by at most n + 1 units in the last
// place of the largest term.
#pragma once

#include <cstdint>
#include <memory>

#include "collectives/collective.h"
#include "core/dtype.h"
#include "kernels/base/view.h"
#include "parallel/layers/workspace.h"
#include "workload/context_layer.h"
#include "workload/context_list.h"
#include "workload/operations.h"

namespace lockstep::parallel {

using workload::ContextLayer;

// The layer's list, with what its exchanges move between each pair of ranks.
class ContextPlan {
 public:
  explicit ContextPlan(const ContextLayer& layer);
  const ContextLayer& layer() const { return layer_; }
  const workload::ContextList& list() const { return list_; }
  const workload::ContextSides& sides() const { return list_.of_rank[static_cast<std::size_t>(layer_.rank)]; }
  const workload::ContextTurn& turn(bool backward, std::int32_t turn) const {
    return list_.turn(layer_.rank, backward, turn);
  }
  // This rank's part in it.
  const workload::ContextExchange& exchange(bool backward, const workload::ExchangePlace& place) const;
  // Of a shift, in bytes.
  std::shared_ptr<const collectives::CountMatrix> bytes_of_pairs(bool backward,
                                                                 const workload::ExchangePlace& place) const;

 private:
  using Matrices = std::vector<std::shared_ptr<const collectives::CountMatrix>>;  // by ExchangePlace::number()
  const ContextLayer layer_;
  const workload::ContextList list_;
  std::array<Matrices, 2> matrices_;  // forward, backward
};

// Where an exchange reads and writes. A shift moves bytes between pairs of ranks as its matrix says; of a rank with
// nothing to send or to receive there are no elements.
struct ContextMove {
  kernels::In input;
  kernels::Out output;
  std::shared_ptr<const collectives::CountMatrix> bytes_of_pairs;  // none: of all ranks alike
};

class ContextAttention {
 public:
  virtual ~ContextAttention() = default;

  // `qkv`: [rows, queries | keys | values], of this rank's tokens.
  virtual void split(kernels::In qkv) = 0;
  virtual void core(std::int32_t turn) = 0;
  virtual void merge(std::int32_t turn) = 0;
  virtual kernels::In output() const = 0;  // [rows, heads, head_columns], once all turns are merged
  virtual const Tensor& output_tensor() const = 0;
  // Gives up all but the output, where no backward comes or the forward is done again before it.
  virtual void forget() = 0;
  virtual void give_up_output() = 0;

  // d_o: the output's gradient, which stays until join().
  virtual void begin_backward(kernels::In d_o) = 0;
  virtual void core_gradient(std::int32_t turn) = 0;
  virtual void merge_gradients(std::int32_t turn) = 0;
  virtual void join(kernels::Out d_qkv) = 0;  // gives up all but the output

  virtual ContextMove exchange(bool backward, const workload::ExchangePlace& place) = 0;
  virtual void exchanged(bool backward, const workload::ExchangePlace& place) = 0;
};

// The arguments outlive it.
std::unique_ptr<ContextAttention> make_context_attention(const ContextPlan& plan, const Workspace& workspace);

}  // namespace lockstep::parallel
