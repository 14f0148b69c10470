// The work of a stage for one microbatch on one rank, operation by operation: kernel calls, exchanges, and the bytes
// kept for the backward. Recipes, prices, memory and the trainer's functions all come from this one list.
//
// The forward goes through the operations in order, the backward in reverse. An operation is either kernels or an
// exchange whose backward is another exchange (tensor parallelism: nothing and all-reduce; sequence parallelism:
// all-gather and reduce-scatter).
//
// Models without dropout run with this library's kernels: a residual addition is fused into the following norm, bias
// and GELU into the preceding product, and the gradient of the logits overwrites them. Models with dropout run kernel
// by kernel as Megatron-LM launches them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "kernels/activation/activation.h"
#include "kernels/attention/attention.h"
#include "kernels/attention_merge/attention_merge.h"
#include "kernels/base/operands.h"
#include "kernels/copy/copy.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/embedding/embedding.h"
#include "kernels/fp8/gemm_fp8.h"
#include "kernels/gemm/gemm.h"
#include "kernels/norm/norm.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/residual/residual.h"
#include "kernels/rotary/rotary.h"
#include "schedules/step/step.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::workload {

// A call of a kernel in a step: arguments with shapes and dtypes, but without data. Its cost is the kernel's own.

// The class of a kernel, which selects the share of a device's peak at which it is priced.
enum class KernelClass : std::uint8_t { product, attention, pass };

// A kernel that other frameworks launch and this library does not have.
struct OtherKernel {
  KernelClass of = KernelClass::pass;
  core::DType dtype = core::DType::bf16;
  double flops = 0;
  double bytes = 0;  // to and from memory
};

struct KernelCall {
  using Arguments =
      std::variant<OtherKernel, kernels::GemmForward, kernels::GemmInputGradient, kernels::GemmWeightGradient,
                   kernels::AttentionForward, kernels::AttentionBackward, kernels::AttentionMerge, kernels::CopyRows,
                   kernels::NormForward, kernels::NormBackward, kernels::GeluForward, kernels::GeluBackward,
                   kernels::SwigluForward, kernels::SwigluBackward, kernels::Rotary, kernels::ResidualAdd,
                   kernels::EmbeddingForward, kernels::EmbeddingBackward, kernels::CrossEntropy,
                   kernels::CrossEntropyStats, kernels::CrossEntropyFinish, kernels::SumOfSquares,
                   kernels::OptimizerStep, kernels::Fp8Encode, kernels::GemmFp8, kernels::GemmFp8Add>;
  Arguments arguments;
  double count = 1;  // number of such calls, sequential
};

// A matrix product, [m, k] by [k, n].
struct Product {
  double m = 0;
  double n = 0;
  double k = 0;
  double flops() const { return 2 * m * n * k; }
};

// Makes arguments with the views' lengths and dtypes filled in (kernels::shaped).
template <class Args>
KernelCall kernel_call(Args args, core::DType dtype, double count = 1) {
  return {kernels::shaped(std::move(args), dtype), count};
}

// A text that is equal for calls of equal cost: the kernel, dtype and bytes of each operand in order, and the FLOPs
// (attention over other lengths may have operands of equal bytes), "gemm_fwd f32:1048576 f32:786432 f32:3145728
// flops:402653184". Empty for OtherKernel.
std::string signature_of(const KernelCall& call);

KernelClass class_of(const KernelCall& call);
core::DType dtype_of(const KernelCall& call);
kernels::Cost cost_of(const KernelCall& call);              // cost of one of `count` calls
std::optional<Product> product_of(const KernelCall& call);  // empty if it is not a product, or one without a shape
// FLOPs done by matrix units: two per multiply-add of products, all of attention; of one of `count` calls.
double matrix_flops_of(const KernelCall& call);

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
  split_heads,       // splits one matrix into queries, keys and values of context-parallel ranks
  exchange_context,  // communication of context-parallel ranks (workload/context_list.h)
  core,              // scores, softmax and the product with the values, in one kernel
  merge_context,     // merges results of context-parallel ranks with this rank's
  scores,
  softmax,
  scores_dropout,
  values,
  projection,
  leave_attention,
  attention_residual,  // with dropout
  // ---- mlp
  mlp_norm,  // norm of the residual stream; without dropout including its addition
  router,
  permute,
  dispatch_over_groups,  // in two hops: first to the groups of ranks that have a token's experts
  dispatch,
  enter_shared,
  shared_experts,  // up, activation and down of the experts that every token uses
  leave_shared,
  enter_mlp,
  up,
  activation,  // if it is not fused into a product
  down,
  leave_mlp,
  combine,
  combine_over_groups,
  unpermute,
  mlp_residual,
  keep_input,  // with Layout::partition_activations (kept_input_operation())
  // ---- tensor ranks in a grid
  exchange_norm,  // sums over a row's columns
  // ---- head
  head_norm,
  enter_head,
  logits,
  exchange_stats,  // three floats per token, for the loss over a sharded vocabulary
  exchange_predicted,
  exchange_sum,
  loss,
};
std::string_view name_of(OperationKind kind);

// True if the MLP's activation is an operation of its own, not fused into the products around it.
bool has_activation(const Model& model, const Layout& layout);
// Scaling of a layer's products in 8-bit floats, if the layout has such products. Factors are encoded each time that a
// product needs them.
inline constexpr std::int64_t kFp8LinearLayers =
    4;  // per transformer layer: queries, keys and values; projection; up; down
std::optional<kernels::Fp8Recipe> fp8_recipe_of(const Layout& layout);

struct Exchange {
  schedules::Comm comm = schedules::Comm::none;  // none: no collective
  schedules::GroupKind group = schedules::GroupKind::tensor;
  double bytes = 0;  // payload, as in schedules::Task::amount
};

struct Operation {
  OperationKind kind = OperationKind::none;
  std::vector<KernelCall> forward = {};
  std::vector<KernelCall> input_gradient = {};
  std::vector<KernelCall> weight_gradient = {};
  Exchange forward_exchange = {};
  Exchange backward_exchange = {};
  // During the operation before this one's backward: gathers inputs again that were kept in parts.
  Exchange regather = {};
  bool beside = false;              // the forward's collective overlaps with the next operation
  bool beside_backward = false;     // the backward's overlaps with the next operation of the backward
  bool beside_weight = false;       // likewise, but only if gradients of inputs and of weights are one list
  bool of_weight_gradient = false;  // operand or result of the backward's collective
  // Number of a tile, from 1 on; of a product on a grid of ranks, and of its exchanges, the index in the list of its
  // steps (workload/grid_product.h). For operations of context-parallel
  // ranks: the turn of a core or a merge, ExchangePosition::number() of an exchange.
  std::uint16_t turn = 0;
  double kept_bytes = 0;  // from the forward to the input gradient
  // From the input gradient to the weight gradient: a product's input and the gradient of its output.
  double later_bytes = 0;
  bool core = false;          // attention: selective recomputation recomputes it instead of keeping its results
  bool keeps_output = false;  // the kept bytes are an output of this operation, not an input
};

// `earlier_tokens`: tokens of each sequence whose keys and values are kept from earlier slices
// (StageSlice::first_token).
std::vector<Operation> layer_operations(const Model& model, const Layout& layout, std::int64_t earlier_tokens = 0);
// With Layout::partition_activations, for the first layer of each group that is recomputed together: the copy of this
// rank's part of its input, which replaces the whole, and the gather that restores the whole.
Operation kept_input_operation(const Model& model, const Layout& layout);
std::vector<Operation> embedding_operations(const Model& model, const Layout& layout);
std::vector<Operation> head_operations(const Model& model, const Layout& layout);

// ---- the pieces of a recipe; Piece::what names an operation and one of its sides

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

// The tile of an MLP to which a piece belongs (Layout::mlp_tiles), whose operations have the tile's number, from 1 on,
// as their turn; -1: none.
constexpr std::int32_t tile_of(PieceName name) {
  const bool is_of_mlp = name.kind == OperationKind::up || name.kind == OperationKind::activation ||
                         name.kind == OperationKind::down || name.kind == OperationKind::mlp_residual;
  return is_of_mlp ? std::int32_t{name.turn} - 1 : -1;
}

// ---- sizes

// Tokens of a microbatch on one rank: all tokens, or this context-parallel rank's part.
double tokens_of(const Model& model, const Layout& layout);
// Rows of activations between layers on one rank: its tokens, or a share of its tokens with sequence parallelism.
double rows_of(const Model& model, const Layout& layout);
// Rows that an expert with a capacity accepts from a rank with this many tokens: capacity_factor times an even share,
// rounded up (Lepikhin et al. 2020, arXiv:2006.16668, section 2.2). 0: no limit.
std::int64_t capacity_of(const Model& model, std::int64_t tokens);
// True if a token is sent once to each group of experts (Model::expert_groups), whose ranks forward it among
// themselves, as in DeepEP's kernels for training: over the network between nodes, then over the links within one.
bool dispatches_in_two_hops(const Model& model, const Layout& layout);
// Bytes of a layer's input on one rank.
double input_bytes(const Model& model, const Layout& layout);
// Bytes that full recomputation keeps of a group's input on one rank: all, or a part (partition_activations).
double kept_input_bytes(const Model& model, const Layout& layout);
// Bytes that a stage sends to the next one, and of the gradient that returns.
std::int64_t message_bytes(const Model& model, const Layout& layout);
double kept_bytes(const std::vector<Operation>& operations);

// The operations of a model whose tensor-parallel ranks form a grid (Layout::grid, workload/grid_product.h): each
// product of a layer becomes a product of blocks, with the exchanges before and after. Between the products a rank has
// whole sequences and a share of the columns, which is the work of a narrower model on one rank.
//
//   norm        row statistics are summed over the ranks that have the other columns (Xu et al. 2021, arXiv:2104.05343,
//               section 3.2.2)
//   attention   of whole heads
//   embedding   words over the ranks of a column (in 3-D of a row, from a gathered panel), a word's columns over other
//               ranks: rows are summed as vocabulary-parallel ranks sum theirs
//   loss        three floats per token are exchanged among the ranks that have the other words

// The product of queries, keys and values, of the projection, of the MLP's first or second matrix, or of the logits.
GridLinear grid_linear(const Model& model, const Layout& layout, OperationKind product);
std::vector<Operation> grid_layer_operations(const Model& model, const Layout& layout);
std::vector<Operation> grid_embedding_operations(const Model& model, const Layout& layout);
std::vector<Operation> grid_head_operations(const Model& model, const Layout& layout);

// Returns why the layout's grid does not fit, with valid values; empty if it does.
std::string grid_conflict(const Model& model, const Layout& layout);

// The attention of context-parallel ranks as operations of the step model, from the list of their form
// (workload/context_list.h), with each exchange overlapping the blocks of a turn where the list allows it.

// From the product that makes queries, keys and values to the projection, for cp above 1 with attention that keeps no
// scores in memory, or colossal. Compute is priced on the rank with most work in each turn; exchanges have the largest
// message of any rank.
//
//   forward    split; operands of turn 0; for each turn: operands of the next turn overlapping core, merge of results
// of
//              the previous turn, results overlapping what follows
//   backward   the same with turns in reverse
std::vector<Operation> context_operations(const Model& model, const Layout& layout);

}  // namespace lockstep::workload
