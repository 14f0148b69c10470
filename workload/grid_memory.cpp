// The tensors that pieces touch where tensor-parallel ranks form a grid (trainer/model/grid_run.h).
#include <algorithm>
#include <optional>

#include "workload/operations.h"
#include "workload/parameters.h"
#include "workload/touches.h"

namespace lockstep::workload {
namespace {

using schedules::Comm;
using schedules::Task;
using Kind = OperationKind;
using T = TensorName;

// The ends of a product.
struct Ends {
  T x, y, dx, dy;
  bool leaves;         // y and dy are the next part's
  WeightIndex weight;  // index in the stage
};

class GridTouches {
 public:
  GridTouches(const Model& model, const Layout& layout, const StageSlice& place, std::size_t first, const Task& piece)
      : model_(model), layout_(layout), place_(place), first_(first), piece_(piece), what_(piece_named(piece.what)) {}

  std::optional<Phase> phase() {
    switch (what_.kind) {
      case Kind::embed:
        embed();
        break;
      case Kind::attention_norm:
      case Kind::head_norm:
        norm({T::x, T::n1, T::norm1, T::d});
        break;
      case Kind::mlp_norm:
        norm({T::h, T::n2, T::norm2, T::dh});
        break;
      case Kind::exchange_norm:
        touch(T::norm_sums);
        break;
      case Kind::qkv:
      case Kind::projection:
      case Kind::up:
      case Kind::down:
      case Kind::logits:
        product();
        break;
      case Kind::exchange_stats:
        if (piece_.comm != Comm::none) return {};
        for (const T name : {T::logits, T::targets}) touch(name);
        make(T::stats);
        break;
      default:
        return {};
    }
    return phase_;
  }

 private:
  bool is_forward() const { return what_.side == Side::forward; }
  void touch(T name, bool makes = false, bool is_next = false) {
    const TensorKey key{piece_.stage, piece_.microbatch, piece_.part + (is_next ? 1 : 0), name};
    phase_.touches.push_back(touch_of(model_, layout_, key, makes));
  }
  void make(T name) { touch(name, true); }
  // Adds to the gradients of a weight of the part, and of its bias.
  void add_to(WeightIndex index) { add_to_stage(index.behind(first_)); }
  void add_to_stage(WeightIndex index) {
    for (std::size_t p = index.weight; p < index.end(); ++p) phase_.gradients.push_back(p);
  }

  // ---- embedding

  // The gradient of a table with a depth: a term, then its sum.
  void embed() {
    const GridLinear table = grid_linear(model_, layout_, Kind::logits);
    const GridStep words{.matrix = GridMatrix::w};
    const bool gathers = !table.transposed;
    const bool sums = layout_.grid.depth > 1;
    const EmbeddingIndices indices(model_);
    if (what_.turn == 1 && is_forward()) return touch_panel(T::panel, table, words, true);
    if (what_.turn == 1) {
      touch_panel(T::partial, table, words, false);
      return gathers ? touch_panel(T::f32_sum, table, words, true) : void();
    }
    if (what_.turn == 2) {
      add_to_stage({indices.words, false});
      touch_panel(gathers ? T::f32_sum : T::partial, table, words, false);
      phase_.commits = true;
      return;
    }
    touch(T::tokens);
    if (is_forward()) {
      if (gathers) touch_panel(T::panel, table, words, false);
      return make(T::term1);
    }
    touch(T::d_all);
    if (model_.learned_positions) add_to_stage({indices.positions, false});
    if (sums) return touch_panel(T::partial, table, words, true);
    add_to_stage({indices.words, false});
    phase_.commits = true;
  }

  // ---- norms, in two pieces

  struct NormNames {
    T in, out, numbers, gradient;
  };
  void norm(const NormNames& names) {
    const bool is_mlp = what_.kind == Kind::mlp_norm;
    const bool is_head = what_.kind == Kind::head_norm;
    const bool is_first = (what_.turn == 0) == is_forward();
    touch(names.in, is_forward() && is_first && is_mlp);
    touch(T::norm_sums, is_first);
    if (is_forward() && is_first && is_mlp) {
      touch(T::x);
      touch(T::sum1);
    }
    if (is_forward()) {
      if (!is_first) make(names.out);
      if (!is_first) make(names.numbers);
      return;
    }
    touch(names.numbers);
    touch(names.gradient);
    if (is_first) {
      const LayerIndices layer(model_, layout_.ep, layout_.mlp_tiles);
      return add_to(is_head ? HeadIndices(model_).norm : is_mlp ? layer.norm2 : layer.norm1);
    }
    if (is_mlp) touch(T::d, false, true);
    if (what_.kind == Kind::attention_norm) touch(T::dh);
    phase_.commits = !is_mlp;
  }

  // ---- products

  Ends ends() const {
    const LayerIndices layer(model_, layout_.ep, layout_.mlp_tiles);
    switch (what_.kind) {
      case Kind::qkv:
        return {T::n1, T::qkv, T::d, T::d_qkv, false, layer.qkv.behind(first_)};
      case Kind::projection:
        return {T::o, T::sum1, T::d_o, T::dh, false, layer.projection.behind(first_)};
      case Kind::up:
        return {T::n2, T::pre, T::dh, model_.gated ? T::pre : T::d_pre, false, layer.up.behind(first_)};
      case Kind::down:
        return {T::act, T::x, T::d_act, T::d, true, layer.down.behind(first_)};
      default:
        return {T::n1, T::logits, T::d, T::logits, false, {head_words_of(model_, place_, first_), false}};
    }
  }

  void touch_panel(T name, const GridLinear& linear, const GridStep& step, bool makes) {
    const bool is_block = name == T::f32_sum;
    const bool is_f32 = is_block || (name == T::partial && step.matrix == GridMatrix::w);
    const core::DType dtype = is_f32 ? core::DType::f32 : layout_.compute;
    const GridBlock size = is_block ? block_of(linear, step.matrix, 0) : panel_of(linear, step.matrix);
    const std::int64_t bytes = static_cast<std::int64_t>(core::size_of(dtype)) * size.elems();
    constexpr std::int32_t kMostPanels = 16;
    const auto matrix = static_cast<std::int32_t>(step.matrix);
    const std::int32_t of_kind = static_cast<std::int32_t>(what_.kind) * static_cast<std::int32_t>(kNumGridMatrices);
    const TensorKey key{piece_.stage, piece_.microbatch, piece_.part, name,
                        (of_kind + matrix) * kMostPanels + step.number};
    phase_.touches.push_back({key, makes, MemoryKind::buffers, bytes});
  }

  void product() {
    const GridLinear linear = grid_linear(model_, layout_, what_.kind);
    const std::vector<GridStep> steps = is_forward() ? forward_steps(linear) : backward_steps(linear);
    const GridStep& step = steps[what_.turn];
    const Ends at = ends();
    const GridMatrix made = made_by(step.product);
    const auto operand = [&](GridMatrix matrix) {
      if (matrix == GridMatrix::w) return;
      matrix == GridMatrix::x ? touch(at.x) : touch(at.dy, false, at.leaves);
    };
    const auto result = [&] {
      made == GridMatrix::x ? touch(at.dx, step.number == 0) : touch(at.y, step.number == 0, at.leaves);
    };
    if (step.comm == Comm::all_reduce) return;
    if (step.is_fetch()) {
      operand(step.matrix);
      return touch_panel(T::panel, linear, step, true);
    }
    if (step.is_exchange()) {
      touch_panel(T::partial, linear, step, false);
      return made == GridMatrix::w ? void() : result();
    }
    for (const GridMatrix matrix : {GridMatrix::x, GridMatrix::w, GridMatrix::y}) {
      if (matrix == made) continue;
      operand(matrix);
      const auto is_this = [&](const GridStep& other) {
        return other.is_fetch() && other.matrix == matrix && other.number == step.number;
      };
      const auto fetch = std::find_if(steps.begin(), steps.end(), is_this);
      if (fetch != steps.end()) touch_panel(T::panel, linear, *fetch, false);
    }
    if (made == GridMatrix::w && step.number == 0) add_to_stage(at.weight);
    const GridStep panel{.matrix = made, .number = step.number};
    if (!is_local_sum(linear, step.product)) return touch_panel(T::partial, linear, panel, true);
    result();
    if (layout_.compute != core::DType::f32) touch_panel(T::f32_sum, linear, {.matrix = made}, step.number == 0);
  }

  const Model& model_;
  const Layout& layout_;
  const StageSlice& place_;
  std::size_t first_;
  const Task& piece_;
  PieceName what_;
  Phase phase_;
};

}  // namespace

std::optional<Phase> phase_on_grid(const Model& model, const Layout& layout, const StageSlice& place,
                                   std::size_t first_parameter, const Task& piece) {
  return GridTouches(model, layout, place, first_parameter, piece).phase();
}

}  // namespace lockstep::workload
