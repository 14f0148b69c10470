// The order of a stage's pieces. Megatron-LM's: an input's gradient is summed over the ranks while the weights'
// gradients are made, and with sequence parallelism what those need is gathered again while the input's is made
// (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2).
#include <vector>

#include "schedules/passes/recipe.h"
#include "schedules/passes/recompute.h"
#include "trainer/model/gpt_stage.h"
#include "trainer/model/pieces.h"

namespace lockstep::trainer {
namespace {

using schedules::Comm;
using schedules::Op;
using schedules::Piece;

// Writes pieces of one part into one list, as its kernels' op.
class PartWriter {
 public:
  PartWriter(const GptShape& shape, std::vector<Piece>& to, std::int32_t part, Op op)
      : shape_(shape), to_(to), part_(part), op_(op) {}

  void kernel(What what) { put({.op = op_, .what = number(what)}); }
  // All rows, of the rows that ranks have.
  void gather(What what, bool beside = false) {
    if (shape_.sequence_parallel && shape_.tensor.ranks > 1) collective(what, Comm::all_gather, rows_bytes(), beside);
  }
  // The sum of ranks' terms: of all rows on each, or of a share.
  void sum(What what, bool beside = false) {
    if (shape_.tensor.ranks == 1) return;
    collective(what, shape_.sequence_parallel ? Comm::reduce_scatter : Comm::all_reduce, rows_bytes(), beside);
  }
  void gather_stats(What what) {
    constexpr std::int64_t kStatsBytes = 3 * sizeof(float);
    if (shape_.tensor.ranks > 1)
      collective(what, Comm::all_gather, shape_.tensor.ranks * shape_.rows() * kStatsBytes, false);
  }

 private:
  static std::uint8_t number(What what) { return static_cast<std::uint8_t>(what); }
  std::int64_t rows_bytes() const {
    return shape_.rows() * shape_.config.hidden * static_cast<std::int64_t>(core::size_of(shape_.compute));
  }
  void collective(What what, Comm comm, std::int64_t bytes, bool beside) {
    put({.op = Op::layer_collective, .amount = bytes, .comm = comm, .beside_next = beside, .what = number(what)});
  }
  void put(Piece piece) {
    piece.part = part_;
    to_.push_back(piece);
  }

  const GptShape& shape_;
  std::vector<Piece>& to_;
  std::int32_t part_;
  Op op_;
};

// ---- embedding

void embedding_forward(PartWriter to) {
  to.kernel(What::embed);
  to.sum(What::sum_embedding);
}

void embedding_backward(PartWriter to) {
  to.gather(What::gather_embedding_gradient);
  to.kernel(What::embedding_weight_gradient);
}

// ---- layer

void layer_forward(PartWriter to) {
  to.kernel(What::attention_in);
  to.gather(What::gather_attention);
  to.kernel(What::qkv);
  to.kernel(What::core);
  to.kernel(What::project);
  to.sum(What::sum_attention);
  to.kernel(What::mlp_in);
  to.gather(What::gather_mlp);
  to.kernel(What::mlp_up);
  to.kernel(What::mlp_down);
  to.sum(What::sum_mlp);
  to.kernel(What::mlp_out);
}

void layer_backward(PartWriter to) {
  to.gather(What::gather_mlp_gradient);
  to.gather(What::regather_mlp, true);
  to.kernel(What::mlp_input_gradient);
  to.sum(What::sum_mlp_gradient, true);
  to.kernel(What::mlp_weight_gradient);
  to.kernel(What::mlp_in_backward);
  to.gather(What::gather_attention_gradient);
  to.gather(What::regather_attention, true);
  to.kernel(What::attention_input_gradient);
  to.sum(What::sum_attention_gradient, true);
  to.kernel(What::attention_weight_gradient);
  to.kernel(What::attention_in_backward);
}

void layer_input_gradient(PartWriter to) {
  to.gather(What::gather_mlp_gradient);
  to.kernel(What::mlp_input_gradient);
  to.sum(What::sum_mlp_gradient);
  to.kernel(What::mlp_in_backward);
  to.gather(What::gather_attention_gradient);
  to.kernel(What::attention_input_gradient);
  to.sum(What::sum_attention_gradient);
  to.kernel(What::attention_in_backward);
}

void layer_weight_gradient(PartWriter to) {
  to.gather(What::regather_mlp);
  to.gather(What::regather_attention, true);
  to.kernel(What::mlp_weight_gradient);
  to.kernel(What::attention_weight_gradient);
}

// What of a layer's forward runs again. Nobody needs the layer's output a second time: what only leads to it is left
// out (as torch.utils.checkpoint's early stop does).
bool leads_to_what_is_kept(const Piece& piece) {
  const auto what = static_cast<What>(piece.what);
  return what >= What::attention_in && what <= What::mlp_up;
}

bool is_core(const Piece& piece) {
  return static_cast<What>(piece.what) == What::core;
}

// ---- head

void head_forward(PartWriter to) {
  to.kernel(What::head_in);
  to.gather(What::gather_head);
  to.kernel(What::logits);
  to.gather_stats(What::gather_stats);
  to.kernel(What::loss);
}

void head_backward(PartWriter to) {
  to.gather(What::regather_head, true);
  to.kernel(What::head_input_gradient);
  to.sum(What::sum_head_gradient, true);
  to.kernel(What::head_weight_gradient);
  to.kernel(What::head_in_backward);
}

void head_input_gradient(PartWriter to) {
  to.kernel(What::head_input_gradient);
  to.sum(What::sum_head_gradient);
  to.kernel(What::head_in_backward);
}

void head_weight_gradient(PartWriter to) {
  to.gather(What::regather_head);
  to.kernel(What::head_weight_gradient);
}

// ---- stage

using WritePart = void (*)(PartWriter);
struct PartWriters {
  WritePart embedding;  // may be none
  WritePart layer;
  WritePart head;
};

// Parts in the forward's order, or from the last to the first.
std::vector<Piece> list_of(const GptShape& shape, const StagePlace& place, Op op, const PartWriters& write) {
  std::vector<Piece> pieces;
  const std::int32_t parts = place.num_parts();
  for (std::int32_t i = 0; i < parts; ++i) {
    const std::int32_t part = op == Op::forward ? i : parts - 1 - i;
    WritePart one = write.layer;
    if (place.embedding && part == 0) one = write.embedding;
    if (place.head && part == parts - 1) one = write.head;
    if (one != nullptr) one(PartWriter(shape, pieces, part, op));
  }
  return pieces;
}

schedules::Recomputation recomputation_of(Recompute recompute, const StagePlace& place) {
  schedules::Recomputation what{.first_part = place.embedding ? 1 : 0};
  if (recompute == Recompute::full) what.again = leads_to_what_is_kept;
  if (recompute == Recompute::selective) what.again = is_core;
  return what;
}

}  // namespace

schedules::StageRecipe recipe_of(const GptShape& shape, const StagePlace& place) {
  const auto list = [&](Op op, const PartWriters& write) { return list_of(shape, place, op, write); };
  schedules::StageRecipe recipe;
  recipe.forward = list(Op::forward, {embedding_forward, layer_forward, head_forward});
  recipe.backward = list(Op::backward, {embedding_backward, layer_backward, head_backward});
  recipe.input_gradient = list(Op::input_gradient, {nullptr, layer_input_gradient, head_input_gradient});
  recipe.weight_gradient = list(Op::weight_gradient, {embedding_backward, layer_weight_gradient, head_weight_gradient});
  return schedules::with_recomputation(recipe, recomputation_of(shape.recompute, place));
}

}  // namespace lockstep::trainer
