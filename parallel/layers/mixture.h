// A mixture of experts instead of the MLP, on expert-parallel ranks: each rank has its own tokens and some of the
// experts (Lepikhin et al. 2020, arXiv:2006.16668). Ranks communicate between the pieces, not within them; the caller
// does so.
//
//   x -> route -> permute -> [dispatch] -> up, activation, down of the experts here -> [combine] -> unpermute -> y
//
// `sent` has a rank's copies of tokens ordered by expert, so that the rows for one rank are contiguous; `here` has the
// received rows, by rank and then by expert: one group of rows for each pair. With a capacity every group has the same
// number of rows, and rows beyond it are dropped (GShard, Switch); without one the sizes of groups depend on the
// router, and ranks exchange them first (dropless: Gale et al. 2022, arXiv:2211.15841).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "collectives/collective.h"
#include "kernels/base/view.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/moe/router.h"
#include "parallel/layers/layers.h"
#include "parallel/memory/memory.h"

namespace lockstep::parallel {

struct MixtureSaved {
  Tensor logits;                       // [tokens, experts]
  Tensor choices;                      // [tokens, top_k] i32
  Tensor gates;                        // [tokens, top_k] f32
  Tensor counts;                       // [experts] i32: tokens that chose each expert, dropped ones included
  Tensor slots;                        // [tokens, top_k] i32
  Tensor copies;                       // [rows sent] i32
  std::vector<std::int64_t> all_rows;  // [rank][expert]: rows that the rank sends to the expert, on the host
  Tensor sent;                         // [rows sent, hidden]
  Tensor here;                         // [rows here, hidden]
  MlpSaved mlp;                        // for the received rows
  Tensor out;                          // [rows here, hidden], outputs of the experts
  Tensor back;                         // [rows sent, hidden], the outputs returned to this rank
};

struct MixtureLosses {
  float balance_scale = 0;  // as in kernels::RouterBackward
  float z_scale = 0;
};

struct MixtureLayer {
  kernels::RouterShape router;  // tokens of this rank, experts of all ranks
  std::int64_t hidden;
  std::int64_t inner;
  std::int64_t capacity = 0;  // rows per expert and sending rank; 0: dropless
  int ranks = 1;              // expert-parallel ranks, each with the same number of experts
  int index = 0;              // index of this rank
  Activation activation = Activation::gelu_in_products;

  std::int64_t experts_here() const { return router.experts / ranks; }
  bool in_products() const { return activation == Activation::gelu_in_products; }
  std::int64_t pre_columns() const { return activation == Activation::swiglu ? 2 * inner : inner; }
  // True if ranks must exchange row counts before they exchange rows.
  bool tells_counts() const { return ranks > 1 && capacity == 0; }
  // Rows of all groups on this rank: [rank][expert here].
  std::vector<std::int64_t> groups(const MixtureSaved& saved) const;
  std::int64_t rows_sent() const;
  std::int64_t rows_here(const MixtureSaved& saved) const;

  // ---- forward
  // `bias`: [experts] f32, of loss-free balancing; empty without it.
  void route(const Workspace& workspace, kernels::In weight, kernels::In bias, kernels::In x,
             MixtureSaved& saved) const;
  void permute(const Workspace& workspace, kernels::In x, MixtureSaved& saved) const;
  void up(const Workspace& workspace, std::span<const LinearWeights> weights, MixtureSaved& saved) const;
  void activate(const Workspace& workspace, MixtureSaved& saved) const;  // if the activation is a kernel of its own
  void down(const Workspace& workspace, std::span<const LinearWeights> weights, MixtureSaved& saved) const;
  void unpermute(const Workspace& workspace, const MixtureSaved& saved, kernels::Out y) const;

  // ---- backward; gradients of rows are [rows sent, hidden] or [rows here, hidden]
  struct SumGradient {
    Tensor rows;   // [rows sent, hidden]
    Tensor gates;  // [tokens, top_k] f32
  };
  SumGradient unpermute_gradient(const Workspace& workspace, const MixtureSaved& saved, kernels::In dy) const;
  // Computes the gradient of `pre`, or of `act` if the activation is a kernel of its own.
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
  // Adds the router's part to dx, which has the rows' part. `d_logits` is for the weight gradient.
  Tensor router_gradient(const Workspace& workspace, kernels::In weight, const MixtureSaved& saved, kernels::In d_gates,
                         const MixtureLosses& losses, kernels::InOut dx) const;
  void router_weight_gradient(const Workspace& workspace, kernels::In x, kernels::In d_logits,
                              kernels::InOut into) const;

  // ---- exchanges, for more than one rank. If row counts are exchanged, this comes first: all [ranks, experts] i32.
  Exchange exchange_counts(const Workspace& workspace, const MixtureSaved& saved, Tensor& all) const;
  void counts_exchanged(const Workspace& workspace, const Tensor& all, MixtureSaved& saved) const;
  // dispatch moves rows sent to rows here, combine the reverse; both allocate `to`.
  Exchange dispatch(const Workspace& workspace, const MixtureSaved& saved, const Tensor& sent, Tensor& to) const;
  Exchange combine(const Workspace& workspace, const MixtureSaved& saved, const Tensor& here, Tensor& to) const;
  // Bytes that this rank sends to others in a dispatch.
  std::int64_t sent_bytes(const MixtureSaved& saved, core::DType dtype) const;

 private:
  kernels::GroupedShape grouped(std::vector<std::int64_t> rows, std::int64_t inputs, std::int64_t outputs) const {
    return {std::move(rows), inputs, outputs, capacity == 0};
  }
  MlpLayer mlp(const MixtureSaved& saved) const { return {rows_here(saved), hidden, inner, activation}; }
  std::int64_t rows_to(const MixtureSaved& saved, int from, int to) const;
  std::shared_ptr<const collectives::CountMatrix> matrix(const MixtureSaved& saved, bool back) const;
  Tensor make_rows(const Workspace& workspace, core::DType dtype, std::int64_t rows, std::int64_t columns) const {
    return workspace.memory.make(MemoryKind::activations, dtype, rows * columns);
  }
};

}  // namespace lockstep::parallel
