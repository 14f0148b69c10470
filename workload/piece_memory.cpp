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

class PieceTouches : private TouchList {
 public:
  PieceTouches(const Model& model, const Layout& layout, const StageSlice& place, const ContextMemory* context,
               const schedules::Task& piece)
      : TouchList(model, layout, piece),
        place_(place),
        context_(context),
        indices_(model, layout.ep, layout.mlp_tiles) {}

  std::vector<Phase> phases() {
    const PieceName what = piece_named(piece_.what);
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
  // Index of the part's first parameter among those of the stage.
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
  void norm_gradients(T held, WeightIndex norm) {
    if (is_split()) {
      make(held);
    } else {
      add_to(of_part(norm));
    }
  }
  void release(T held, WeightIndex norm) {
    give_up();
    add_to(of_part(norm));
    use(held);
  }
  // The first tensors that context-parallel ranks touch come with those touched here.
  void touch_context(PieceName what) {
    if (context_ == nullptr) return;
    bool is_first = true;
    for (const ContextPhase& phase : context_->phases(what)) {
      if (!std::exchange(is_first, false)) give_up();
      for (const ContextTouch& touch : phase) {
        const TensorKey key{piece_.stage, piece_.microbatch, piece_.part, T::context, touch.tensor};
        phases_.back().touches.push_back({key, touch.makes, MemoryKind::activations, touch.bytes});
      }
    }
  }

  // SwiGLU's gradient overwrites the tensor that it is the gradient of.
  T d_pre() const { return model_.gated ? T::pre : T::d_pre; }
  T d_shared_pre() const { return model_.gated ? T::shared_pre : T::d_shared_pre; }

  // ---- parts

  void embedding(PieceName what) {
    switch (what.kind) {
      case Kind::embed:
        use(T::tokens);
        if (what.side == Side::weight_gradient) {
          add_to({EmbeddingIndices(model_).words, model_.learned_positions});  // positions follow the words
          use_next_d();
          return commit();
        }
        return shares_rows() ? make(T::term1) : make_next(T::x);
      default:
        LOCKSTEP_CHECK(what.kind == Kind::leave_embedding, "a piece of the embedding");
        if (what.side != Side::forward) return gather_next_d();
        return leave(T::term1);
    }
  }

  // Touches the tensors of a mixture's piece; returns whether it was one.
  bool mixture(PieceName what) {
    if (model_.experts == 0) return false;
    switch (what.side) {
      case Side::forward:
        return mixture_forward(what.kind);
      case Side::input_gradient:
        return mixture_input_gradient(what.kind);
      default:
        return mixture_weight_gradient(what.kind);
    }
  }
  bool alone() const { return layout_.ep == 1; }  // all experts are on this rank
  bool mixture_forward(Kind kind) {
    switch (kind) {
      case Kind::router:
        use(T::n2);
        for (const T name : {T::router_logits, T::choices, T::gates, T::counts, T::slots, T::copies}) make(name);
        return true;
      case Kind::permute:
        use_all({T::n2, T::copies});
        make(alone() ? T::here : T::sent);
        return true;
      case Kind::shared_experts:
        use(T::n2);
        for (const T name : {T::shared_pre, T::shared_act, T::shared}) make(name);
        return true;
      case Kind::dispatch_over_groups:  // in two hops, which the trainer does not run: memory as with one
      case Kind::combine_over_groups:
        return true;
      case Kind::dispatch:
        use_all({T::sent, T::counts});
        make(T::here);
        if (model_.capacity_factor == 0) make(T::all_counts);
        return true;
      case Kind::up:
        use(T::here);
        make(T::pre);
        if (!has_activation(model_, layout_)) make(T::act);
        return true;
      case Kind::down:
        use(T::act);
        make(alone() ? T::back : T::out);
        return true;
      case Kind::combine:
        use(T::out);
        make(T::back);
        return true;
      case Kind::unpermute:
        use_all({T::back, T::slots, T::gates});
        make_next(T::x);
        if (model_.shared_hidden > 0) use(T::shared);
        return true;
      default:
        return false;
    }
  }

  bool mixture_input_gradient(Kind kind) {
    switch (kind) {
      case Kind::unpermute:
        use_next(T::d);
        use_all({T::back, T::slots, T::copies, T::gates});
        make(alone() ? T::d_out : T::d_back);
        make(T::d_gates);
        return true;
      case Kind::combine:
        use(T::d_back);
        make(T::d_out);
        return true;
      case Kind::down:
        use(T::d_out);
        if (has_activation(model_, layout_)) {
          make(T::d_act);
        } else {
          use(T::pre);
          make(T::d_pre);
        }
        return true;
      case Kind::up:
        use(d_pre());
        make(alone() ? T::d_sent : T::d_here);
        return true;
      case Kind::shared_experts:
        use_next(T::d);
        use(T::shared_pre);
        if (has_activation(model_, layout_)) make(T::d_shared_act);
        if (!model_.gated) make(T::d_shared_pre);
        give_up();
        use(d_shared_pre());
        make(T::d_shared);
        return true;
      case Kind::dispatch_over_groups:
      case Kind::combine_over_groups:
        return true;
      case Kind::dispatch:
        use(T::d_here);
        make(T::d_sent);
        return true;
      case Kind::permute:
        use_all({T::d_sent, T::slots});
        make(T::dh);
        if (model_.shared_hidden > 0) use(T::d_shared);
        return true;
      case Kind::router:
        use_all({T::router_logits, T::choices, T::counts, T::d_gates, T::dh});
        make(T::d_router_logits);
        make(T::d_router);
        return true;
      default:
        return false;
    }
  }

  bool mixture_weight_gradient(Kind kind) {
    const auto add_to_all = [&](const std::vector<WeightIndex>& experts) {
      for (const WeightIndex& expert : experts) add_to(of_part(expert));
    };
    switch (kind) {
      case Kind::down:
        add_to_all(indices_.experts_down);
        use_all({T::act, T::d_out});
        return true;
      case Kind::up:
        add_to_all(indices_.experts_up);
        use_all({T::here, d_pre()});
        return true;
      case Kind::shared_experts:
        add_to(of_part(indices_.down));
        add_to(of_part(indices_.up));
        use_next(T::d);
        use_all({T::shared_act, T::n2, d_shared_pre()});
        return true;
      case Kind::router:
        add_to(of_part(indices_.router));
        use_all({T::n2, T::d_router_logits});
        return true;
      default:
        return false;
    }
  }

  void layer(PieceName what) {
    if (mixture(what)) return;
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
        return what.kind == Kind::qkv ? regather(T::n1, T::n1_all) : regather(T::n2, T::n2_all);
    }
  }
  void forward(Kind kind) {
    switch (kind) {
      case Kind::attention_norm:
        use(T::x);
        make(T::n1);
        return make(T::norm1);
      case Kind::enter_attention:
        return regather(T::n1, T::n1_all);
      case Kind::keep_input:
        return regather(T::x, T::x_part);
      case Kind::qkv:
        use_rows(T::n1, T::n1_all);
        return make(T::qkv);
      case Kind::rotary:
      case Kind::split_heads:
        return use(T::qkv);
      case Kind::exchange_context:
      case Kind::merge_context:
      case Kind::scores:
      case Kind::values:
        return;
      case Kind::core:
        if (context_ != nullptr) return;
        use(T::qkv);
        make(T::o);
        make(T::lse);
        return attend_to_earlier();
      case Kind::projection:
        if (context_ == nullptr) use(T::o);
        return make(shares_rows() ? T::term1 : T::sum1);
      case Kind::leave_attention:
        return sum_of_shares(T::term1, T::sum1);
      case Kind::mlp_norm:
        use(T::x);
        use(T::sum1);
        make(T::h);
        make(T::n2);
        return make(T::norm2);
      case Kind::enter_mlp:
        return regather(T::n2, T::n2_all);
      case Kind::up:
        use_rows(T::n2, T::n2_all);
        make(T::pre);
        return has_activation(model_, layout_) ? void() : make(T::act);
      case Kind::activation:
        use(T::pre);
        return make(T::act);
      case Kind::down:
        use(T::act);
        if (tile_ > 0) return add_tile(T::term2, T::x, piece_.part + 1);
        return shares_rows() ? make(T::term2) : make_next(T::x);
      case Kind::leave_mlp:
        return leave(T::term2);
      default:
        LOCKSTEP_CHECK(kind == Kind::mlp_residual, "a forward piece of a layer");
        use(T::h);
        return use_next(T::x);
    }
  }

  // ---- slices of a sequence (parallel::AttentionLayer); slice_tokens has the tokens of each

  std::int32_t slice() const { return piece_.microbatch % layout_.slices; }
  void attend_to_earlier() {
    if (slice() == 0) return;
    give_up();
    use(T::lse);
    make(T::o_part);
    make(T::lse_part);
  }
  void core_gradient_of_slice() {
    const bool is_first_to_add = slice() + 1 == layout_.slices;
    make(is_first_to_add ? T::d_qkv : T::d_qkv_part);
    for (std::int32_t earlier = 0; earlier < slice(); ++earlier) {
      give_up();
      make(T::d_qkv_part);
      touch_earlier(earlier, is_first_to_add ? T::d_qkv : T::d_keys_part);
    }
    for (const T name : {T::d_o, T::qkv, T::o, T::lse}) use(name);
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

  void input_gradient(Kind kind) {
    switch (kind) {
      case Kind::keep_input:
        return regather(T::x_part, T::x);
      case Kind::leave_mlp:
        return gather_next_d();
      case Kind::down:
        use_next_d();
        if (has_activation(model_, layout_)) return make(T::d_act);
        use(T::pre);
        return make(T::d_pre);
      case Kind::activation:
        use(T::pre);
        use(T::d_act);
        return model_.gated ? void() : make(T::d_pre);
      case Kind::up:
        use(d_pre());
        if (tile_ + 1 < layout_.mlp_tiles) return add_tile(T::d_term2, T::dh, piece_.part);
        return make(shares_rows() ? T::d_term2 : T::dh);
      case Kind::enter_mlp:
        return sum_of_shares(T::d_term2, T::dh);
      case Kind::mlp_norm:
        use(T::h);
        use(T::norm2);
        use_next(T::d);
        use(T::dh);
        return norm_gradients(T::held2, indices_.norm2);
      case Kind::leave_attention:
        return regather(T::dh, T::dh_all);
      case Kind::projection:
        use_rows(T::dh, T::dh_all);
        return make(T::d_o);
      case Kind::split_heads:
        use(T::d_o);
        return make(T::d_qkv);
      case Kind::exchange_context:
      case Kind::merge_context:
      case Kind::scores:
      case Kind::values:
        return;
      case Kind::core:
        if (context_ != nullptr) return;
        if (layout_.slices > 1) return core_gradient_of_slice();
        for (const T name : {T::d_o, T::qkv, T::o, T::lse}) use(name);
        return make(T::d_qkv);
      case Kind::rotary:
        return use(T::d_qkv);
      case Kind::qkv:
        use(T::d_qkv);
        return make(shares_rows() ? T::d_term1 : T::d);
      case Kind::enter_attention:
        return sum_of_shares(T::d_term1, T::d);
      default:
        LOCKSTEP_CHECK(kind == Kind::attention_norm, "a backward piece of a layer");
        for (const T name : {T::x, T::norm1, T::dh, T::d}) use(name);
        norm_gradients(T::held1, indices_.norm1);
        if (!is_split()) commit();
    }
  }

  void weight_gradient(Kind kind) {
    switch (kind) {
      case Kind::down:
        add_to(of_part(indices_.tiles_down[static_cast<std::size_t>(tile_)]));
        use(T::act);
        return use_next_d();
      case Kind::up:
        add_to(of_part(indices_.tiles_up[static_cast<std::size_t>(tile_)]));
        use_rows(T::n2, T::n2_all);
        return use(d_pre());
      case Kind::projection:
        add_to(of_part(indices_.projection));
        if (context_ == nullptr) use(T::o);
        return use_rows(T::dh, T::dh_all);
      default:
        LOCKSTEP_CHECK(kind == Kind::qkv, "a weight gradient of a layer");
        use_rows(T::n1, T::n1_all);
        use(T::d_qkv);
        add_to(of_part(indices_.qkv));
        if (!is_split()) return;
        release(T::held1, indices_.norm1);
        release(T::held2, indices_.norm2);
        commit();
    }
  }

  void head(PieceName what) {
    const bool weight = what.side == Side::weight_gradient;
    switch (what.kind) {
      case Kind::head_norm:
        use(T::x);
        if (what.side == Side::forward) {
          make(T::n1);
          return make(T::norm1);
        }
        use(T::norm1);
        use(T::d);
        norm_gradients(T::held1, HeadIndices(model_).norm);
        if (!is_split()) commit();
        return;
      case Kind::enter_head:
        return what.side == Side::forward ? regather(T::n1, T::n1_all) : sum_of_shares(T::d_term1, T::d);
      case Kind::logits:
        if (what.side == Side::regather) return regather(T::n1, T::n1_all);
        if (what.side == Side::forward) return logits();
        use(T::logits);
        if (!weight) return make(shares_rows() ? T::d_term1 : T::d);
        phases_.back().gradients.push_back(head_words_of(model_, place_, first_parameter()));
        use_rows(T::n1, T::n1_all);
        if (!is_split()) return;
        release(T::held1, HeadIndices(model_).norm);
        return commit();
      case Kind::exchange_stats:
        return regather(T::stats, T::all_stats);
      default:
        LOCKSTEP_CHECK(what.kind == Kind::loss, "a piece of the head");
        use(T::targets);
        use(T::logits);
        if (layout_.tp > 1) use(T::all_stats);
        make(T::losses);
    }
  }
  void logits() {
    use_rows(T::n1, T::n1_all);
    make(T::logits);
    if (layout_.tp == 1) return;
    give_up();
    make(T::stats);
  }

  const StageSlice& place_;
  const ContextMemory* context_;
  LayerIndices indices_;
};

}  // namespace

std::vector<Phase> phases_of(const Model& model, const Layout& layout, const StageSlice& place,
                             const ContextMemory* context, const schedules::Task& piece) {
  return PieceTouches(model, layout, place, context, piece).phases();
}

}  // namespace lockstep::workload
