// The work of a stage for one microbatch on one rank, operation by operation: kernel calls, exchanges, and the bytes
// that are kept for the backward. Recipes, prices, memory and the trainer's functions all come from this one list.
//
// The forward goes through the operations in order, the backward in reverse. An operation is either kernels or an
// exchange whose backward is another exchange (tensor parallel: nothing and all-reduce; sequence parallel: all-gather
// and reduce-scatter).
//
// Models without dropout run as this library's kernels do: a residual addition is part of the norm behind it, bias and
// GELU are part of the product before them, and the gradient of the logits overwrites them. Models with dropout run
// kernel by kernel as Megatron-LM launches them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "schedules/step/step.h"
#include "workload/kernel_call.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::workload {

enum class OperationKind : std::uint8_t {
  none,
  // ---- embedding
  embed,  // words, and positions without dropout
  leave_embedding,
  positions,
  embedding_dropout,
  // ---- attention
  attention_norm,
  enter_attention,
  qkv,
  rotary,
  split_heads,       // queries, keys and values of context ranks, out of one matrix
  exchange_context,  // what context ranks send each other (workload/context_list.h)
  core,              // scores, softmax and the values weighed by them, in one kernel
  merge_context,     // what came from context ranks, with what is here
  scores,
  softmax,
  scores_dropout,
  values,
  projection,
  leave_attention,
  attention_residual,  // with dropout
  // ---- mlp
  mlp_norm,  // of the residual stream; without dropout also its addition
  router,
  permute,
  dispatch_over_groups,  // in two hops: first to the groups of ranks that a token's experts are in
  dispatch,
  enter_shared,
  shared_experts,  // up, activation and down of the experts that every token goes to
  leave_shared,
  enter_mlp,
  up,
  activation,  // where it is no part of a product
  down,
  leave_mlp,
  combine,
  combine_over_groups,
  unpermute,
  mlp_residual,
  keep_input,  // with Layout::partition_activations (kept_input_operation())
  // ---- tensor ranks in a grid
  exchange_norm,  // of sums over a row's columns
  exchange_grid,  // of a product's blocks (workload/grid_product.h)
  // ---- head
  head_norm,
  enter_head,
  logits,
  exchange_stats,  // of each token, for the loss over a vocabulary that is shared out
  exchange_predicted,
  exchange_sum,
  loss,
};
std::string_view name_of(OperationKind kind);

// Whether the MLP's activation is an operation of its own, and not a part of the products around it.
bool has_activation(const Model& model, const Layout& layout);
// How a layer's products are done in 8-bit floats, where the layout has them so. Encoded are their factors, each time
// that a product needs them.
inline constexpr std::int64_t kFp8LinearLayers =
    4;  // of a transformer layer: queries, keys and values; projection; up; down
std::optional<kernels::Fp8Recipe> fp8_recipe_of(const Layout& layout);

struct Exchange {
  schedules::Comm comm = schedules::Comm::none;  // none: there is no collective
  schedules::GroupKind group = schedules::GroupKind::tensor;
  double bytes = 0;  // payload, as schedules::Task::amount
};

struct Operation {
  OperationKind kind = OperationKind::none;
  std::vector<KernelCall> forward = {};
  std::vector<KernelCall> input_gradient = {};
  std::vector<KernelCall> weight_gradient = {};
  Exchange forward_exchange = {};
  Exchange backward_exchange = {};
  // Before the backward of an operation, beside it: inputs that were kept in parts are gathered again.
  Exchange regather = {};
  bool beside = false;              // the forward's collective runs beside the next operation
  bool beside_backward = false;     // the backward's beside the next of the backward
  bool beside_weight = false;       // likewise, but only where gradients of inputs and of weights are one list
  bool of_weight_gradient = false;  // what the backward's collective brings or takes
  // Of a tile its number, from 1 on; of a grid's products the number in the list. Of operations of context ranks: the
  // turn of a core or a merge, ExchangePlace::number() of an exchange.
  std::uint16_t turn = 0;
  double kept_bytes = 0;  // from the forward to the input gradient
  // From the input gradient to the weight gradient: a product's input and the gradient of its output.
  double later_bytes = 0;
  bool core = false;          // of attention: run again by selective recomputation instead of kept
  bool keeps_output = false;  // what is kept is made here, and not an input
};

// `earlier_tokens`: of each sequence, whose keys and values lie here from slices before (StageSlice::first_token).
std::vector<Operation> layer_operations(const Model& model, const Layout& layout, std::int64_t earlier_tokens = 0);
// With Layout::partition_activations, of the first layer of each group that is recomputed together: the copy of this
// rank's part of its input, which takes the place of the whole, and the gather that brings the whole back.
Operation kept_input_operation(const Model& model, const Layout& layout);
std::vector<Operation> embedding_operations(const Model& model, const Layout& layout);
std::vector<Operation> head_operations(const Model& model, const Layout& layout);

// ---- the pieces of a recipe, whose Piece::what says which of an operation's sides they are

enum class Side : std::uint8_t { forward, input_gradient, weight_gradient, regather };
struct PieceName {
  OperationKind kind = OperationKind::none;
  Side side = Side::forward;
  std::uint16_t turn = 0;  // Operation::turn
  friend bool operator==(const PieceName&, const PieceName&) = default;
};
constexpr std::uint32_t what_of(PieceName name) {
  return std::uint32_t{name.turn} << 16U | static_cast<std::uint32_t>(name.kind) << 2U |
         static_cast<std::uint32_t>(name.side);
}
constexpr PieceName piece_named(std::uint32_t what) {
  return {static_cast<OperationKind>(what >> 2U & 0xffU), static_cast<Side>(what & 3U),
          static_cast<std::uint16_t>(what >> 16U)};
}

// The tile of an MLP that a piece is of (Layout::mlp_tiles), whose operations have the numbers from 1 on as their
// turns; -1: of none.
constexpr std::int32_t tile_of(PieceName name) {
  const bool is_of_mlp = name.kind == OperationKind::up || name.kind == OperationKind::activation ||
                         name.kind == OperationKind::down || name.kind == OperationKind::mlp_residual;
  return is_of_mlp ? std::int32_t{name.turn} - 1 : -1;
}

// ---- sizes

// Tokens of a microbatch on one rank: all of them, or this context rank's part.
double tokens_of(const Model& model, const Layout& layout);
// Rows of activations between layers on one rank: its tokens, or its share of them with sequence parallelism.
double rows_of(const Model& model, const Layout& layout);
// Rows that an expert takes of those of one rank with so many tokens, where it has a capacity: capacity_factor times an
// even share, rounded up (Lepikhin et al. 2020, arXiv:2006.16668, section 2.2). 0: all that come.
std::int64_t capacity_of(const Model& model, std::int64_t tokens);
// Whether a token goes once to each group of experts (Model::expert_groups), whose ranks pass it on among themselves,
// as DeepEP's kernels for training do: over the network between nodes, then over the links within one.
bool dispatches_in_two_hops(const Model& model, const Layout& layout);
// Bytes of a layer's input on one rank.
double input_bytes(const Model& model, const Layout& layout);
// Bytes that full recomputation keeps of a group's input on one rank: all of it, or a part (partition_activations).
double kept_input_bytes(const Model& model, const Layout& layout);
// Bytes of what a stage sends on, and of the gradient that comes back.
std::int64_t message_bytes(const Model& model, const Layout& layout);
double kept_bytes(const std::vector<Operation>& operations);

}  // namespace lockstep::workload
