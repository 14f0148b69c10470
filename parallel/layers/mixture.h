// A mixture of experts in place of the MLP, on expert-parallel ranks: each rank has its own tokens and some of the
// experts (Lepikhin et al. 2020, arXiv:2006.16668). Ranks exchange between the pieces, not in them: the caller says
// when.
//
//   x -> route -> permute -> [dispatch] -> up, activation, down of the experts here -> [combine] -> unpermute -> y
//
// `sent` has a rank's copies of tokens in the order of all experts, so that what goes to one rank lies together; `here`
// has what came, rank after rank, and of each rank expert after expert: as many groups of rows. With a capacity every
// group has as many rows, and what an expert does not take is dropped (GShard, Switch); without one groups have the
// rows that the router gives them, which ranks tell each other first (dropless: Gale et al. 2022, arXiv:2211.15841).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/collective.h"
#include "kernels/base/view.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/moe/router.h"
#include "parallel/layers/linear.h"
#include "parallel/layers/mlp.h"
#include "parallel/layers/workspace.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

struct MixtureSaved {
  Tensor logits;                       // [tokens, experts]
  Tensor choices;                      // [tokens, top_k] i32
  Tensor gates;                        // [tokens, top_k] f32
  Tensor counts;                       // [experts] i32: choices of each, dropped ones too
  Tensor slots;                        // [tokens, top_k] i32
  Tensor copies;                       // [rows sent] i32
  std::vector<std::int64_t> all_rows;  // [rank][expert]: rows of the expert that the rank sends, on the host
  Tensor sent;                         // [rows sent, hidden]
  Tensor here;                         // [rows here, hidden]
  MlpSaved mlp;                        // of the rows here
  Tensor out;                          // [rows here, hidden], of the experts
  Tensor back;                         // [rows sent, hidden], what came back of it
};

struct MixtureLosses {
  float balance_scale = 0;  // as of kernels::RouterBackward
  float z_scale = 0;
};

// What ranks exchange. Without a matrix blocks are equal.
struct RowExchange {
  kernels::In input;
  kernels::Out output;
  std::shared_ptr<const collectives::CountMatrix> matrix = nullptr;  // elements
};

struct MixtureLayer {
  kernels::RouterShape router;  // tokens of this rank, experts of all
  std::int64_t hidden;
  std::int64_t inner;
  std::int64_t capacity = 0;  // rows of an expert that one rank sends; 0: dropless
  int ranks = 1;              // expert-parallel ones, each with as many experts
  int index = 0;              // of this rank
  Activation activation = Activation::gelu_in_products;

  std::int64_t experts_here() const { return router.experts / ranks; }
  bool in_products() const { return activation == Activation::gelu_in_products; }
  std::int64_t pre_columns() const { return activation == Activation::swiglu ? 2 * inner : inner; }
  // Whether ranks do not know how many rows come before they have told each other.
  bool tells_counts() const { return ranks > 1 && capacity == 0; }
  // Rows of all groups here: [rank][expert here].
  std::vector<std::int64_t> groups(const MixtureSaved& saved) const;
  std::int64_t rows_sent() const;
  std::int64_t rows_here(const MixtureSaved& saved) const;

  // ---- forward
  // `bias`: [experts] f32, of loss-free balance; none without it.
  void route(const Workspace& workspace, kernels::In weight, kernels::In bias, kernels::In x,
             MixtureSaved& saved) const;
  void permute(const Workspace& workspace, kernels::In x, MixtureSaved& saved) const;
  void up(const Workspace& workspace, std::span<const LinearWeights> weights, MixtureSaved& saved) const;
  void activate(const Workspace& workspace, MixtureSaved& saved) const;  // where it is a kernel of its own
  void down(const Workspace& workspace, std::span<const LinearWeights> weights, MixtureSaved& saved) const;
  void unpermute(const Workspace& workspace, const MixtureSaved& saved, kernels::Out y) const;

  // ---- backward; gradients of rows are [rows sent, hidden] or [rows here, hidden]
  struct SumGradient {
    Tensor rows;   // [rows sent, hidden]
    Tensor gates;  // [tokens, top_k] f32
  };
  SumGradient unpermute_gradient(const Workspace& workspace, const MixtureSaved& saved, kernels::In dy) const;
  // To the gradient of `pre`, or to that of `act` if the activation is a kernel of its own.
  Tensor down_gradient(const Workspace& workspace, std::span<const LinearWeights> weights, const MixtureSaved& saved,
                       kernels::In d_out) const;
  Tensor activation_gradient(const Workspace& workspace, MixtureSaved& saved, kernels::In d_act) const;
  Tensor up_gradient(const Workspace& workspace, std::span<const LinearWeights> weights, const MixtureSaved& saved,
                     kernels::In d_pre) const;
  void weight_gradient(const Workspace& workspace, const MixtureSaved& saved, const Tensor& x, const Tensor& dy,
                       std::span<const LinearGradients> into) const;
  // dx = the sum over a token's copies.
  void permute_gradient(const Workspace& workspace, const MixtureSaved& saved, kernels::In d_sent,
                        kernels::Out dx) const;
  // dx has the rows' part, to which the router's is added. `d_logits` is for the weight's gradient.
  Tensor router_gradient(const Workspace& workspace, kernels::In weight, const MixtureSaved& saved, kernels::In d_gates,
                         const MixtureLosses& losses, kernels::InOut dx) const;
  void router_weight_gradient(const Workspace& workspace, kernels::In x, kernels::In d_logits,
                              kernels::InOut into) const;

  // ---- exchanges, of more than one rank. Before any of rows, where ranks tell counts: all [ranks, experts] i32.
  RowExchange exchange_counts(const Workspace& workspace, const MixtureSaved& saved, Tensor& all) const;
  void counts_exchanged(const Workspace& workspace, const Tensor& all, MixtureSaved& saved) const;
  // From rows sent to rows here, and from rows here to rows sent; `to` is made.
  RowExchange dispatch(const Workspace& workspace, const MixtureSaved& saved, const Tensor& sent, Tensor& to) const;
  RowExchange combine(const Workspace& workspace, const MixtureSaved& saved, const Tensor& here, Tensor& to) const;
  // Bytes that leave this rank in a dispatch.
  std::int64_t sent_bytes(const MixtureSaved& saved, core::DType dtype) const;

 private:
  MlpLayer mlp(const MixtureSaved& saved) const { return {rows_here(saved), hidden, inner, activation}; }
  std::int64_t rows_to(const MixtureSaved& saved, int from, int to) const;
  std::shared_ptr<const collectives::CountMatrix> matrix(const MixtureSaved& saved, bool back) const;
  Tensor make_rows(const Workspace& workspace, core::DType dtype, std::int64_t rows, std::int64_t columns) const {
    return workspace.memory.make(MemoryKind::activations, dtype, rows * columns);
  }
};

}  // namespace lockstep::parallel
