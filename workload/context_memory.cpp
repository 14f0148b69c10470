#include "workload/memory.h"

#include <algorithm>
#include <utility>

#include "workload/operations.h"

namespace lockstep::workload {
namespace {

using schedules::Comm;
using Array = ContextArray;
using Kind = OperationKind;
using Phases = std::map<std::uint32_t, std::vector<ContextPhase>>;

// The rank's own arrays that a forward may keep.
constexpr std::int32_t kQueries = 0;
constexpr std::int32_t kKeys = 1;
constexpr std::int32_t kOutputs = 2;
constexpr std::int32_t kSums = 3;        // colossal: scores
constexpr std::int32_t kOwnOutputs = 4;  // the rank's own tokens, while kOutputs are of its own heads
constexpr std::int32_t kFirstOther = 5;

// Replays the memory use of one form of context parallelism; each direction follows the calls of its class in
// parallel/context.
class Play {
 public:
  explicit Play(const ContextLayer& layer) : layer_(layer), sides_(context_sides(layer.shape, layer.rank)) {}
  virtual ~Play() = default;
  Play(const Play&) = delete;
  Play& operator=(const Play&) = delete;

  virtual void forward() = 0;
  virtual void backward() = 0;
  Phases take() { return std::move(phases_); }

 protected:
  void piece(Kind kind, Side side, std::uint16_t turn = 0) {
    now_ = &phases_[what_of({kind, side, turn})];
    now_->emplace_back();
  }
  void phase() { now_->emplace_back(); }
  void make_as(std::int32_t tensor, std::int64_t bytes) { now_->back().push_back({tensor, true, bytes}); }
  std::int32_t make(std::int64_t bytes) {
    make_as(next_, bytes);
    bytes_.push_back(bytes);
    return next_++;
  }
  std::int32_t make(Array array) { return make(layer_.bytes(array)); }
  void touch(std::int32_t tensor) {
    const std::int64_t bytes =
        tensor < kFirstOther ? bytes_of_own(tensor) : bytes_[static_cast<std::size_t>(tensor - kFirstOther)];
    now_->back().push_back({tensor, false, bytes});
  }
  void make_own(std::int32_t tensor) { make_as(tensor, bytes_of_own(tensor)); }
  // Frees what the forward keeps if the backward recomputes it, and the outputs that the projection has used.
  void projection(std::int32_t outputs) {
    piece(Kind::projection, Side::forward);
    for (const std::int32_t own : {kQueries, kKeys, kSums}) touch(own);
    if (outputs != kOutputs) touch(kOutputs);
    phase();
    touch(outputs);
    piece(Kind::projection, Side::weight_gradient);
    touch(outputs);
  }

  // Bytes of the scores of all heads and own queries with this many keys.
  std::int64_t score_bytes(std::int64_t keys) const {
    return static_cast<std::int64_t>(core::size_of(layer_.dtype)) * layer_.rows() * layer_.heads * keys;
  }

  const ContextLayer& layer_;
  const ContextSides sides_;

 private:
  std::int64_t bytes_of_own(std::int32_t tensor) const {
    switch (tensor) {
      case kQueries:
        return layer_.bytes(Array::queries);
      case kKeys:
        return layer_.bytes(Array::keys);
      case kSums:
        return layer_.shape.way == ContextWay::colossal ? score_bytes(layer_.length) : layer_.bytes(Array::sums);
      default:
        return layer_.bytes(Array::outputs);
    }
  }

  Phases phases_;
  std::vector<ContextPhase>* now_ = nullptr;
  std::vector<std::int64_t> bytes_;
  std::int32_t next_ = kFirstOther;
};

// Forms in which ranks keep their tokens.
class BlockPlay : public Play {
 public:
  using Play::Play;

  void forward() override {
    piece(Kind::split_heads, Side::forward);
    make_own(kQueries);
    make_own(kKeys);
    held_ = {{own(Array::queries), kQueries}, {own(Array::keys), kKeys}};
    run(false);
    projection(kOutputs);
  }

  void backward() override {
    held_ = {{own(Array::queries), kQueries},
             {own(Array::keys), kKeys},
             {own(Array::outputs), kOutputs},
             {own(Array::sums), kSums}};
    run(true);
    piece(Kind::split_heads, Side::input_gradient);
    for (const Array array :
         {Array::queries, Array::keys, Array::outputs, Array::sums, Array::d_queries, Array::d_keys}) {
      touch(held_.at(own(array)));
    }
  }

 protected:
  using Key = std::pair<Array, std::int32_t>;  // with its owner
  Key own(Array array) const { return {array, layer_.rank}; }
  static constexpr std::pair kAllKeys{Array::keys, kWholeSequence};
  static constexpr std::pair kAllGradients{Array::d_keys, kWholeSequence};

  const std::vector<ContextTurn>& turns() const { return backward_ ? sides_.backward : sides_.forward; }
  const ContextTurn& turn_at(std::int32_t turn) const { return turns()[static_cast<std::size_t>(turn)]; }
  Side side() const { return backward_ ? Side::input_gradient : Side::forward; }

  // A turn's operands, blocks and results; received results are merged after the blocks of the next turn.
  void run(bool backward) {
    backward_ = backward;
    const auto count = static_cast<std::int32_t>(turns().size());
    for (std::int32_t step = 0; step < count; ++step) {
      const std::int32_t turn = backward ? count - 1 - step : step;
      const std::vector<ExchangePosition> places = places_of(turn_at(turn), turn);
      exchanges(places, false);
      core(turn);
      if (step > 0) merge(backward ? turn + 1 : turn - 1);
      exchanges(places, true);
      if (step + 1 == count) merge(turn);
    }
  }

  void exchanges(const std::vector<ExchangePosition>& places, bool results) {
    for (const ExchangePosition& place : places) {
      if (place.results == results) exchange(place);
    }
  }

  void exchange(const ExchangePosition& place) {
    const ContextTurn& turn = turn_at(place.turn);
    const ContextExchange& moved =
        (place.results ? turn.results : turn.operands)[static_cast<std::size_t>(place.index)];
    piece(Kind::exchange_context, side(), place.number());
    if (!place.results && place.index == 0) give_up(ContextMoment::operands_begin, place.turn);
    phase();
    if (moved.comm == Comm::all_gather) {
      gathered_ = make(layer_.shape.ranks * layer_.bytes(Array::keys));
      return;
    }
    if (moved.comm == Comm::reduce_scatter) {
      touch(gathered_);
      held_[own(Array::d_keys)] = make(Array::d_keys);
      return;
    }
    for (const ContextMessage& send : moved.sends) {
      if (!place.results) continue;
      const Key key{moved.array, send.owner};
      if (held_.count(key) == 0) held_[key] = make(key.first);  // zeros
      touch(held_.at(key));
      held_.erase(key);
    }
    for (const ContextMessage& receive : moved.receives) {
      (place.results ? arrived_[place.turn] : held_)[{moved.received, receive.owner}] = make(moved.received);
    }
  }

  void give_up(ContextMoment moment, std::int32_t turn) {
    const std::int32_t gone = turn_given_up(turns(), backward_, moment, turn);
    if (gone < 0) return;
    for (const ContextExchange& exchange : turn_at(gone).operands) {
      if (exchange.comm != Comm::shift) continue;
      for (const ContextMessage& receive : exchange.receives) {
        touch(held_.at({exchange.received, receive.owner}));
        held_.erase({exchange.received, receive.owner});
      }
    }
  }

  void core(std::int32_t turn) {
    turn_ = turn;
    piece(kind_of(turn_at(turn).blocks), side(), static_cast<std::uint16_t>(turn));
    give_up(ContextMoment::blocks_begin, turn);
    if (gathered_ >= 0) {
      phase();
      held_[kAllKeys] = make(layer_.shape.ranks * layer_.bytes(Array::keys));
      touch(std::exchange(gathered_, -1));
    }
    for (const ContextBlock& block : turn_at(turn).blocks) {
      phase();
      backward_ ? backward_block(block) : forward_block(block);
    }
    if (held_.count(kAllKeys) > 0) touch(held_.extract(kAllKeys).mapped());
    if (held_.count(kAllGradients) > 0) {
      phase();
      touch(held_.extract(kAllGradients).mapped());
      gathered_ = make(layer_.shape.ranks * layer_.bytes(Array::d_keys));
    }
    give_up(ContextMoment::blocks_end, turn);
  }

  // Bytes of the output of a block's kernel before it is merged.
  std::int64_t part_bytes(Array array, std::int64_t elems) const {
    return static_cast<std::int64_t>(core::size_of(layer_.dtype_of(array))) * elems;
  }
  std::int64_t sums_of(const kernels::AttentionShape& shape) const {
    return part_bytes(Array::sums, shape.batch * shape.heads * shape.queries);
  }
  std::int64_t queries_of(const kernels::AttentionShape& shape) const {
    return part_bytes(Array::queries, shape.batch * shape.queries * shape.row());
  }

  virtual void forward_block(const ContextBlock& block) {
    const kernels::AttentionShape shape = call_shape(layer_, block);
    const Key outputs{Array::outputs, block.queries_of};
    if (held_.count(outputs) == 0) {
      const bool is_own = block.queries_of == layer_.rank;
      if (is_own) {
        make_own(kOutputs);
        make_own(kSums);
      }
      held_[outputs] = is_own ? kOutputs : make(Array::outputs);
      held_[{Array::sums, block.queries_of}] = is_own ? kSums : make(Array::sums);
    }
    if (block.merges_queries) make(queries_of(shape));
    if (block.merges_queries || !rows_of(layer_, block).has_all_queries()) make(sums_of(shape));
  }

  virtual void backward_block(const ContextBlock& block) {
    const kernels::AttentionShape shape = call_shape(layer_, block);
    for (const Key& key : {Key{Array::d_queries, block.queries_of}, Key{Array::d_keys, block.keys_of}}) {
      const std::int64_t owners = key.second == kWholeSequence ? layer_.shape.ranks : 1;
      if (held_.count(key) == 0) held_[key] = make(owners * layer_.bytes(key.first));
    }
    if (!rows_of(layer_, block).has_all_queries()) make(sums_of(shape));
    if (block.merges_queries) make(queries_of(shape));
    if (block.adds_keys) make(part_bytes(Array::d_keys, 2 * shape.batch * shape.keys * shape.key_row()));
  }

  // An array without a sum on this rank becomes the sum.
  void merge(std::int32_t turn) {
    piece(Kind::merge_context, side(), static_cast<std::uint16_t>(turn));
    for (const auto& [key, tensor] : std::exchange(arrived_[turn], {})) {
      touch(tensor);
      held_.try_emplace(key, tensor);
    }
  }

  std::map<Key, std::int32_t> held_;
  std::int32_t turn_ = 0;

 private:
  static Kind kind_of(const std::vector<ContextBlock>& blocks) {
    if (blocks.empty() || blocks.front().work == ContextWork::attention) return Kind::core;
    return blocks.front().work == ContextWork::scores ? Kind::scores : Kind::values;
  }

  bool backward_ = false;
  std::map<std::int32_t, std::map<Key, std::int32_t>> arrived_;  // by turn
  std::int32_t gathered_ = -1;                                   // gathered keys in rank order, or their gradients
};

// Ranks keep their tokens, and scores are in memory.
class ScorePlay final : public BlockPlay {
 public:
  using BlockPlay::BlockPlay;

  void backward() override {
    piece(Kind::projection, Side::input_gradient);
    d_outputs_ = make(Array::d_outputs);
    held_.clear();
    run(true);
    piece(Kind::split_heads, Side::input_gradient);
    for (const std::int32_t own_one : {kQueries, kKeys, kOutputs}) touch(own_one);
    for (const Array array : {Array::d_queries, Array::d_keys_only, Array::d_values_only}) touch(held_.at(own(array)));
  }

 private:
  std::int32_t ranks() const { return layer_.shape.ranks; }
  std::int32_t make_block() { return make(score_bytes(layer_.tokens())); }
  void add_to(const Key& key) { held_.try_emplace(key, make(key.first)); }  // a later term is freed

  void forward_block(const ContextBlock& block) override {
    if (block.work == ContextWork::scores) {
      if (turn_ == 0) make_own(kSums);
      make_block();
      if (turn_ + 1 == ranks() && layer_.shape.causal) make(score_bytes(layer_.length) / layer_.heads / layer_.batch);
      return;
    }
    make_block();
    add_to(own(Array::outputs));
    if (turn_ + 1 != 2 * ranks()) return;
    phase();
    make_own(kOutputs);
    touch(held_.at(own(Array::outputs)));
  }

  void backward_block(const ContextBlock& block) override {
    if (block.work == ContextWork::values) {
      if (turn_ + 1 == 2 * ranks()) d_scores_ = make(score_bytes(layer_.length));
      make_block();
      add_to({Array::d_values_only, block.keys_of});
      touch(d_outputs_);
      touch(kSums);
      return;
    }
    const std::int32_t d_block = make_block();
    add_to(own(Array::d_queries));
    phase();
    add_to({Array::d_keys_only, block.keys_of});
    touch(d_block);
    touch(d_scores_);
  }

  std::int32_t d_outputs_ = -1;
  std::int32_t d_scores_ = -1;
};

// Ranks exchange their tokens for their heads and back.
class HeadPlay final : public Play {
 public:
  using Play::Play;

  void forward() override {
    piece(Kind::split_heads, Side::forward);
    std::vector<std::int32_t> moving{make(Array::queries), make(Array::keys)};
    exchange(Side::forward, false, moving);
    piece(Kind::core, Side::forward);
    make_own(kQueries);
    touch(moving[0]);
    phase();
    make_own(kKeys);
    touch(moving[1]);
    phase();
    make_own(kOutputs);
    make_own(kSums);
    moving = {make(Array::outputs)};
    exchange(Side::forward, true, moving);
    piece(Kind::merge_context, Side::forward);
    make_own(kOwnOutputs);
    touch(moving[0]);
    projection(kOwnOutputs);
  }

  void backward() override {
    piece(Kind::projection, Side::input_gradient);
    std::vector<std::int32_t> moving{make(Array::d_outputs)};
    exchange(Side::input_gradient, false, moving);
    piece(Kind::core, Side::input_gradient);
    const std::int32_t d_outputs = make(Array::d_outputs);
    touch(moving[0]);
    phase();
    const std::int32_t d_queries = make(Array::d_queries);
    const std::int32_t d_keys = make(Array::d_keys);
    for (const std::int32_t tensor : {kQueries, kKeys, kOutputs, kSums, d_outputs}) touch(tensor);
    phase();
    moving = {make(Array::d_queries)};
    touch(d_queries);
    phase();
    moving.push_back(make(Array::d_keys));
    touch(d_keys);
    exchange(Side::input_gradient, true, moving);
    piece(Kind::split_heads, Side::input_gradient);
    for (const std::int32_t tensor : moving) touch(tensor);
    touch(kOwnOutputs);
  }

 private:
  // Each array is freed as its replacement arrives.
  void exchange(Side side, bool results, std::vector<std::int32_t>& moving) {
    const ContextTurn& turn = side == Side::forward ? sides_.forward.front() : sides_.backward.front();
    for (std::size_t i = 0; i < moving.size(); ++i) {
      const ExchangePosition place{.results = results, .index = static_cast<std::int32_t>(i)};
      piece(Kind::exchange_context, side, place.number());
      touch(moving[i]);
      moving[i] = make((results ? turn.results : turn.operands)[i].array);
    }
  }
};

}  // namespace

ContextMemory::ContextMemory(const ContextLayer& layer) {
  const auto play = [&](Play&& way) {
    way.forward();
    way.backward();
    phases_ = way.take();
  };
  if (layer.shape.way == ContextWay::ulysses) {
    play(HeadPlay(layer));
  } else if (layer.shape.way == ContextWay::colossal) {
    play(ScorePlay(layer));
  } else {
    play(BlockPlay(layer));
  }
}

const std::vector<ContextPhase>& ContextMemory::phases(PieceName piece) const {
  static const std::vector<ContextPhase> kNone;
  const auto found = phases_.find(what_of(piece));
  return found == phases_.end() ? kNone : found->second;
}

namespace {

// Most bytes held at once by tensors that begin in these phases.
std::int64_t most_bytes(const std::vector<const ContextPhase*>& phases) {
  std::map<std::int32_t, std::size_t> last;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    for (const ContextTouch& touch : *phases[i]) last[touch.tensor] = i;
  }
  std::map<std::int32_t, bool> begun;
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    for (const ContextTouch& touch : *phases[i]) {
      if (touch.makes) now += touch.bytes;
      if (touch.makes) begun[touch.tensor] = true;
    }
    most = std::max(most, now);
    for (const ContextTouch& touch : *phases[i]) {
      if (last.at(touch.tensor) == i && std::exchange(begun[touch.tensor], false)) now -= touch.bytes;
    }
  }
  return most;
}

}  // namespace

std::int64_t context_moving_bytes(const Model& model, const Layout& layout) {
  const ContextLayer layer = context_layer_of(model, layout, layout.cp - 1);
  if (layer.shape.way == ContextWay::colossal) {
    return 2 * layer.bytes(ContextArray::queries) + 5 * layer.bytes(ContextArray::keys) +
           layer.bytes(ContextArray::sums);
  }
  const std::vector<Operation> ops = context_operations(model, layout);
  std::int64_t most = 0;
  for (const std::int32_t rank : {layout.cp - 1, 0}) {
    const ContextMemory memory(context_layer_of(model, layout, rank));
    std::vector<const ContextPhase*> phases;
    const auto add = [&](PieceName piece) {
      for (const ContextPhase& phase : memory.phases(piece)) phases.push_back(&phase);
    };
    add({Kind::projection, Side::input_gradient});
    for (auto op = ops.rbegin(); op != ops.rend(); ++op) add({op->kind, Side::input_gradient, op->turn});
    most = std::max(most, most_bytes(phases));
  }
  return most;
}

}  // namespace lockstep::workload
