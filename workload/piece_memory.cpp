#include "workload/touches.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "core/error.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::workload {
namespace {

using schedules::Op;
using Kind = OperationKind;
using T = TensorName;

// While a product in 8-bit floats runs: the codes and scales of both factors, and with current scaling the largest
// elements of the second.
std::int64_t code_bytes(const Model& model, const Layout& layout, PieceName product) {
  std::int64_t bytes = 0;
  for (const Operation& op : layer_operations(model, layout)) {
    if (op.kind != product.kind) continue;
    const std::vector<KernelCall>& calls = product.side == Side::forward          ? op.forward
                                           : product.side == Side::input_gradient ? op.input_gradient
                                                                                  : op.weight_gradient;
    for (const KernelCall& call : calls) {
      const auto* const encode = std::get_if<kernels::Fp8Encode>(&call.arguments);
      if (encode == nullptr) continue;
      const auto scales = static_cast<std::int64_t>(sizeof(float)) * encode->blocks();
      const bool is_second = bytes > 0;
      bytes += encode->rows * encode->columns + scales + (is_second && !encode->delayed ? scales : 0);
    }
  }
  return bytes;
}

// The phases of one piece.
class PieceTouches {
 public:
  PieceTouches(const Model& model, const Layout& layout, const StageSlice& place, const ContextMemory* context,
               const schedules::Task& piece)
      : model_(model),
        layout_(layout),
        place_(place),
        context_(context),
        piece_(piece),
        tile_(layout.mlp_tiles > 1 ? std::max(tile_of(piece_named(piece.what)), 0) : 0),
        indices_(model, layout.ep, layout.mlp_tiles) {}

  std::vector<Phase> phases() {
    const PieceName what = piece_named(piece_.what);
    if (layout_.has_grid()) {
      if (const auto phase = phase_on_grid(model_, layout_, place_, first_parameter(), piece_)) return {*phase};
    }
    if (place_.embedding && piece_.part == 0) {
      embedding(what);
    } else if (place_.head && piece_.part == place_.num_parts() - 1) {
      head(what);
    } else {
      layer(what);
    }
    return phases_;
  }

 private:
  bool shares_rows() const { return layout_.shares_rows() && layout_.tp > 1; }
  // Rows of which ranks have a share each, or all rows where ranks share rows.
  T rows(T own, T all) const { return shares_rows() ? all : own; }

  void touch_in(std::int32_t part, T name, bool makes) {
    const bool is_of_tile = name == T::pre || name == T::act || name == T::d_pre || name == T::d_act;
    const TensorKey key{piece_.stage, piece_.microbatch, part, name, is_of_tile ? tile_ : 0};
    phases_.back().touches.push_back(touch_of(model_, layout_, key, makes));
  }
  void touch(std::initializer_list<T> used, std::initializer_list<T> made = {}) {
    for (const T name : used) touch_in(piece_.part, name, false);
    for (const T name : made) touch_in(piece_.part, name, true);
  }
  void make(T name) { touch({}, {name}); }
  // Tensors of the next part: this one's output.
  void use_next(T name) { touch_in(piece_.part + 1, name, false); }
  void make_next(T name) { touch_in(piece_.part + 1, name, true); }
  void use_next_d() { shares_rows() ? touch({T::d_all}) : use_next(T::d); }
  void gather_next_d() {
    use_next(T::d);
    make(T::d_all);
  }
  void leave(T term) {
    if (!shares_rows()) return use_next(T::x);
    touch({term});
    make_next(T::x);
  }
  void sum_of_shares(T term, T sum) { shares_rows() ? touch({term}, {sum}) : touch({sum}); }
  // The term that one more tile adds to a sum over all tiles.
  void add_tile(T term, T sum, std::int32_t part) {
    make(term);
    touch_in(part, sum, false);
  }
  // The codes of a product in 8-bit floats, while it runs.
  void encode(PieceName what) {
    const std::int64_t bytes = code_bytes(model_, layout_, what);
    if (bytes == 0) return;
    const TensorKey key{piece_.stage, piece_.microbatch, piece_.part, T::codes};
    phases_.back().touches.push_back({key, true, MemoryKind::buffers, bytes});
  }
  void give_up() { phases_.emplace_back(); }  // begins the next phase
  void commit() { phases_.back().commits = true; }

  // Index of the part's first parameter in the stage.
  std::size_t first_parameter() const {
    const std::size_t before = place_.embedding ? EmbeddingIndices(model_).count : 0;
    const std::int32_t layers_before = piece_.part - (place_.embedding ? 1 : 0);
    return before + static_cast<std::size_t>(layers_before) * indices_.count;
  }
  WeightIndex of_part(WeightIndex index) const { return index.behind(first_parameter()); }
  void add_to(WeightIndex index) {  // and to the bias after it
    phases_.back().gradients.push_back(index.weight);
    if (index.has_bias) phases_.back().gradients.push_back(index.bias());
  }
  // Gradients of norms are computed with the input gradient, and wait for a separate W.
  bool is_split() const { return piece_.op == Op::input_gradient || piece_.op == Op::weight_gradient; }
  void norm_gradients(T held, WeightIndex norm) { is_split() ? make(held) : add_to(of_part(norm)); }
  void release(T held, WeightIndex norm) {
    give_up();
    add_to(of_part(norm));
    touch({held});
  }
  // The first tensors that context-parallel ranks touch come with those touched here.
  void touch_context(PieceName what) {
    if (context_ == nullptr) return;
    bool is_first = true;
    for (const ContextPhase& phase : context_->phases(what)) {
      if (!std::exchange(is_first, false)) give_up();
      for (const ContextTouch& of_rank : phase) {
        const TensorKey key{piece_.stage, piece_.microbatch, piece_.part, T::context, of_rank.tensor};
        phases_.back().touches.push_back({key, of_rank.makes, MemoryKind::activations, of_rank.bytes});
      }
    }
  }

  // SwiGLU's gradient overwrites the tensor that it is the gradient of.
  T d_pre() const { return model_.gated ? T::pre : T::d_pre; }
  T d_shared_pre() const { return model_.gated ? T::shared_pre : T::d_shared_pre; }

  // ---- parts

  void embedding(PieceName what) {
    if (what.kind != Kind::embed) {
      LOCKSTEP_CHECK(what.kind == Kind::leave_embedding, "a piece of the embedding");
      return what.side == Side::forward ? leave(T::term1) : gather_next_d();
    }
    touch({T::tokens});
    if (what.side == Side::forward) return shares_rows() ? make(T::term1) : make_next(T::x);
    add_to({EmbeddingIndices(model_).words, model_.learned_positions});  // positions follow the words
    use_next_d();
    commit();
  }

  // ---- mixtures of experts

  bool is_of_mixture(Kind kind) const {
    return model_.experts > 0 &&
           (kind == Kind::up || kind == Kind::down || (kind >= Kind::router && kind <= Kind::shared_experts) ||
            (kind >= Kind::combine && kind <= Kind::unpermute));
  }
  void mixture(PieceName what) {
    // Exchanges in two hops, which the trainer does not run, take memory as in one.
    if (what.kind == Kind::dispatch_over_groups || what.kind == Kind::combine_over_groups) return;
    if (what.side == Side::forward) return mixture_forward(what.kind);
    what.side == Side::input_gradient ? mixture_input_gradient(what.kind) : mixture_weight_gradient(what.kind);
  }
  bool alone() const { return layout_.ep == 1; }  // all experts are on this rank
  void mixture_forward(Kind kind) {
    switch (kind) {
      case Kind::router:
        return touch({T::n2}, {T::router_logits, T::choices, T::gates, T::counts, T::slots, T::copies});
      case Kind::permute:
        return touch({T::n2, T::copies}, {alone() ? T::here : T::sent});
      case Kind::shared_experts:
        return touch({T::n2}, {T::shared_pre, T::shared_act, T::shared});
      case Kind::dispatch:
        touch({T::sent, T::counts}, {T::here});
        return model_.capacity_factor == 0 ? make(T::all_counts) : void();
      case Kind::up:
        touch({T::here}, {T::pre});
        return has_activation(model_, layout_) ? void() : make(T::act);
      case Kind::down:
        return touch({T::act}, {alone() ? T::back : T::out});
      case Kind::combine:
        return touch({T::out}, {T::back});
      default:
        LOCKSTEP_CHECK(kind == Kind::unpermute, "a forward piece of a mixture");
        touch({T::back, T::slots, T::gates});
        make_next(T::x);
        if (model_.shared_hidden > 0) touch({T::shared});
    }
  }

  void mixture_input_gradient(Kind kind) {
    switch (kind) {
      case Kind::unpermute:
        use_next(T::d);
        return touch({T::back, T::slots, T::copies, T::gates}, {alone() ? T::d_out : T::d_back, T::d_gates});
      case Kind::combine:
        return touch({T::d_back}, {T::d_out});
      case Kind::down:
        return has_activation(model_, layout_) ? touch({T::d_out}, {T::d_act}) : touch({T::d_out, T::pre}, {T::d_pre});
      case Kind::up:
        return touch({d_pre()}, {alone() ? T::d_sent : T::d_here});
      case Kind::shared_experts:
        use_next(T::d);
        touch({T::shared_pre});
        if (has_activation(model_, layout_)) make(T::d_shared_act);
        if (!model_.gated) make(T::d_shared_pre);
        give_up();
        return touch({d_shared_pre()}, {T::d_shared});
      case Kind::dispatch:
        return touch({T::d_here}, {T::d_sent});
      case Kind::permute:
        touch({T::d_sent, T::slots}, {T::dh});
        return model_.shared_hidden > 0 ? touch({T::d_shared}) : void();
      default:
        LOCKSTEP_CHECK(kind == Kind::router, "a backward piece of a mixture");
        touch({T::router_logits, T::choices, T::counts, T::d_gates, T::dh}, {T::d_router_logits, T::d_router});
    }
  }

  void mixture_weight_gradient(Kind kind) {
    const auto add_to_all = [&](const std::vector<WeightIndex>& experts) {
      for (const WeightIndex& expert : experts) add_to(of_part(expert));
    };
    switch (kind) {
      case Kind::down:
        add_to_all(indices_.experts_down);
        return touch({T::act, T::d_out});
      case Kind::up:
        add_to_all(indices_.experts_up);
        return touch({T::here, d_pre()});
      case Kind::shared_experts:
        add_to(of_part(indices_.down));
        add_to(of_part(indices_.up));
        use_next(T::d);
        return touch({T::shared_act, T::n2, d_shared_pre()});
      default:
        LOCKSTEP_CHECK(kind == Kind::router, "a weight gradient of a mixture");
        add_to(of_part(indices_.router));
        touch({T::n2, T::d_router_logits});
    }
  }

  // ---- layers

  void layer(PieceName what) {
    if (is_of_mixture(what.kind)) return mixture(what);
    if (layout_.fp8 != Fp8::none && what.side != Side::regather) encode(what);
    touch_context(what);
    switch (what.side) {
      case Side::forward:
        return forward(what.kind);
      case Side::input_gradient:
        return input_gradient(what.kind);
      case Side::weight_gradient:
        return weight_gradient(what.kind);
      case Side::regather:
        return what.kind == Kind::qkv ? touch({T::n1}, {T::n1_all}) : touch({T::n2}, {T::n2_all});
    }
  }
  void forward(Kind kind) {
    switch (kind) {
      case Kind::attention_norm:
        return touch({T::x}, {T::n1, T::norm1});
      case Kind::enter_attention:
        return touch({T::n1}, {T::n1_all});
      case Kind::keep_input:
        return touch({T::x}, {T::x_part});
      case Kind::qkv:
        return touch({rows(T::n1, T::n1_all)}, {T::qkv});
      case Kind::rotary:
      case Kind::split_heads:
        return touch({T::qkv});
      case Kind::exchange_context:
      case Kind::merge_context:
      case Kind::scores:
      case Kind::values:
        return;
      case Kind::core:
        if (context_ != nullptr) return;
        touch({T::qkv}, {T::o, T::lse});
        return attend_to_earlier();
      case Kind::projection:
        if (context_ == nullptr) touch({T::o});
        return make(rows(T::sum1, T::term1));
      case Kind::leave_attention:
        return sum_of_shares(T::term1, T::sum1);
      case Kind::mlp_norm:
        return touch({T::x, T::sum1}, {T::h, T::n2, T::norm2});
      case Kind::enter_mlp:
        return touch({T::n2}, {T::n2_all});
      case Kind::up:
        touch({rows(T::n2, T::n2_all)}, {T::pre});
        return has_activation(model_, layout_) ? void() : make(T::act);
      case Kind::activation:
        return touch({T::pre}, {T::act});
      case Kind::down:
        touch({T::act});
        if (tile_ > 0) return add_tile(T::term2, T::x, piece_.part + 1);
        return shares_rows() ? make(T::term2) : make_next(T::x);
      case Kind::leave_mlp:
        return leave(T::term2);
      default:
        LOCKSTEP_CHECK(kind == Kind::mlp_residual, "a forward piece of a layer");
        touch({T::h});
        return use_next(T::x);
    }
  }

  // ---- slices of a sequence (parallel::AttentionLayer); slice_tokens has the tokens of each

  std::int32_t slice() const { return piece_.microbatch % layout_.slices; }
  void attend_to_earlier() {
    if (slice() == 0) return;
    give_up();
    touch({T::lse}, {T::o_part, T::lse_part});
  }
  void core_gradient_of_slice() {
    const bool is_first_to_add = slice() + 1 == layout_.slices;
    make(is_first_to_add ? T::d_qkv : T::d_qkv_part);
    for (std::int32_t earlier = 0; earlier < slice(); ++earlier) {
      give_up();
      make(T::d_qkv_part);
      touch_earlier(earlier, is_first_to_add ? T::d_qkv : T::d_keys_part);
    }
    touch({T::d_o, T::qkv, T::o, T::lse});
  }
  // Makes a tensor of an earlier slice.
  void touch_earlier(std::int32_t earlier, T name) {
    const auto tokens = [&](std::int32_t of) { return layout_.slice_tokens[static_cast<std::size_t>(of)]; };
    const TensorKey key{piece_.stage, piece_.microbatch - slice() + earlier, piece_.part, name};
    Touch made = touch_of(model_, layout_, {.name = T::d_qkv}, true);
    made.key = key;
    made.bytes = made.bytes / tokens(slice()) * tokens(earlier);
    phases_.back().touches.push_back(made);
  }

  // ---- backward

  void input_gradient(Kind kind) {
    switch (kind) {
      case Kind::keep_input:
        return touch({T::x_part}, {T::x});
      case Kind::leave_mlp:
        return gather_next_d();
      case Kind::down:
        use_next_d();
        return has_activation(model_, layout_) ? make(T::d_act) : touch({T::pre}, {T::d_pre});
      case Kind::activation:
        touch({T::pre, T::d_act});
        return model_.gated ? void() : make(T::d_pre);
      case Kind::up:
        touch({d_pre()});
        if (tile_ + 1 < layout_.mlp_tiles) return add_tile(T::d_term2, T::dh, piece_.part);
        return make(rows(T::dh, T::d_term2));
      case Kind::enter_mlp:
        return sum_of_shares(T::d_term2, T::dh);
      case Kind::mlp_norm:
        touch({T::h, T::norm2, T::dh});
        use_next(T::d);
        return norm_gradients(T::held2, indices_.norm2);
      case Kind::leave_attention:
        return touch({T::dh}, {T::dh_all});
      case Kind::projection:
        return touch({rows(T::dh, T::dh_all)}, {T::d_o});
      case Kind::split_heads:
        return touch({T::d_o}, {T::d_qkv});
      case Kind::exchange_context:
      case Kind::merge_context:
      case Kind::scores:
      case Kind::values:
        return;
      case Kind::core:
        if (context_ != nullptr) return;
        if (layout_.slices > 1) return core_gradient_of_slice();
        return touch({T::d_o, T::qkv, T::o, T::lse}, {T::d_qkv});
      case Kind::rotary:
        return touch({T::d_qkv});
      case Kind::qkv:
        return touch({T::d_qkv}, {rows(T::d, T::d_term1)});
      case Kind::enter_attention:
        return sum_of_shares(T::d_term1, T::d);
      default:
        LOCKSTEP_CHECK(kind == Kind::attention_norm, "a backward piece of a layer");
        touch({T::x, T::norm1, T::dh, T::d});
        norm_gradients(T::held1, indices_.norm1);
        if (!is_split()) commit();
    }
  }

  void weight_gradient(Kind kind) {
    switch (kind) {
      case Kind::down:
        add_to(of_part(indices_.tiles_down[static_cast<std::size_t>(tile_)]));
        touch({T::act});
        return use_next_d();
      case Kind::up:
        add_to(of_part(indices_.tiles_up[static_cast<std::size_t>(tile_)]));
        return touch({rows(T::n2, T::n2_all), d_pre()});
      case Kind::projection:
        add_to(of_part(indices_.projection));
        if (context_ == nullptr) touch({T::o});
        return touch({rows(T::dh, T::dh_all)});
      default:
        LOCKSTEP_CHECK(kind == Kind::qkv, "a weight gradient of a layer");
        touch({rows(T::n1, T::n1_all), T::d_qkv});
        add_to(of_part(indices_.qkv));
        if (!is_split()) return;
        release(T::held1, indices_.norm1);
        release(T::held2, indices_.norm2);
        commit();
    }
  }

  void head(PieceName what) {
    switch (what.kind) {
      case Kind::head_norm:
        if (what.side == Side::forward) return touch({T::x}, {T::n1, T::norm1});
        touch({T::x, T::norm1, T::d});
        norm_gradients(T::held1, HeadIndices(model_).norm);
        return is_split() ? void() : commit();
      case Kind::enter_head:
        return what.side == Side::forward ? touch({T::n1}, {T::n1_all}) : sum_of_shares(T::d_term1, T::d);
      case Kind::logits:
        return logits(what.side);
      case Kind::exchange_stats:
        return touch({T::stats}, {T::all_stats});
      default:
        LOCKSTEP_CHECK(what.kind == Kind::loss, "a piece of the head");
        touch({T::targets, T::logits}, {T::losses});
        if (layout_.tp > 1) touch({T::all_stats});
    }
  }
  void logits(Side side) {
    switch (side) {
      case Side::forward:
        touch({rows(T::n1, T::n1_all)}, {T::logits});
        if (layout_.tp == 1) return;
        give_up();
        return make(T::stats);
      case Side::regather:
        return touch({T::n1}, {T::n1_all});
      case Side::input_gradient:
        return touch({T::logits}, {rows(T::d, T::d_term1)});
      case Side::weight_gradient:
        touch({T::logits, rows(T::n1, T::n1_all)});
        phases_.back().gradients.push_back(head_words_of(model_, place_, first_parameter()));
        if (!is_split()) return;
        release(T::held1, HeadIndices(model_).norm);
        commit();
    }
  }

  const Model& model_;
  const Layout& layout_;
  const StageSlice& place_;
  const ContextMemory* context_;
  const schedules::Task& piece_;
  std::int32_t tile_;  // tile of an MLP; 0 for other pieces
  LayerIndices indices_;
  std::vector<Phase> phases_{1};
};

}  // namespace

std::vector<Phase> phases_of(const Model& model, const Layout& layout, const StageSlice& place,
                             const ContextMemory* context, const schedules::Task& piece) {
  return PieceTouches(model, layout, place, context, piece).phases();
}

}  // namespace lockstep::workload
