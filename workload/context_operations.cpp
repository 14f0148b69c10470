#include "workload/context_operations.h"

#include <algorithm>
#include <set>
#include <utility>

#include "workload/context_check.h"
#include "workload/context_list.h"

namespace lockstep::workload {
namespace {

using schedules::Comm;
using schedules::GroupKind;

class ContextOperations {
 public:
  ContextOperations(const Model& model, const Layout& layout)
      : model_(model),
        shape_(context_of(layout)),
        last_(context_sides(shape_, shape_.ranks - 1)),
        first_(context_sides(shape_, 0)),
        turns_(static_cast<std::int32_t>(last_.forward.size())),
        dtype_(layout.compute),
        batch_(layout.microbatch_size),
        heads_(model.heads / layout.tp),
        kv_heads_(model.kv_heads / layout.tp),
        tokens_(model.sequence / layout.cp),
        chunk_(model.sequence / chunks_of(shape_)) {}

  std::vector<Operation> all() {
    ops_.push_back(split());
    for (std::int32_t turn = -1; turn < turns_; ++turn) {
      if (turn >= 0) ops_.push_back(core(turn));
      between(turn);
    }
    return std::move(ops_);
  }

 private:
  const std::vector<ContextTurn>& turns(bool backward) const { return backward ? last_.backward : last_.forward; }
  const ContextTurn& turn_at(bool backward, std::int32_t turn) const {
    return turns(backward)[static_cast<std::size_t>(turn)];
  }
  bool has(std::int32_t turn) const { return turn >= 0 && turn < turns_; }
  std::int64_t query_columns() const { return heads_ * model_.head_size; }
  std::int64_t key_columns() const { return kv_heads_ * model_.head_size; }
  double element() const { return static_cast<double>(core::size_of(dtype_)); }

  // What is between the blocks of a turn and those of the next: the forward's in order, the backward's in reverse.
  void between(std::int32_t turn) {
    const bool is_end = turn + 1 == turns_;
    if (turn < 0) operands(0, false, false);
    merge(turn - 1, false);
    results(turn, false, !is_end);
    if (is_end) merge(turn, false);
    operands(turn + 2, false, true);

    const std::size_t begin = ops_.size();
    const std::int32_t next = turn + 1;  // whose backward comes before
    if (is_end) operands(turn, true, false);
    merge(next + 1, true);
    results(next, true, turn >= 0);
    if (turn < 0) merge(next, true);
    operands(turn - 1, true, true);
    std::reverse(ops_.begin() + static_cast<std::ptrdiff_t>(begin), ops_.end());
  }

  // ---- exchanges

  ContextArraySizes sizes() const {
    return {.tokens = static_cast<double>(batch_ * tokens_),
            .queries = static_cast<double>(query_columns()),
            .keys = static_cast<double>(key_columns()),
            .heads = static_cast<double>(heads_),
            .elem_bytes = element()};
  }

  void operands(std::int32_t turn, bool backward, bool beside) {
    if (has(turn)) exchanges(turn, backward, false, beside);
  }
  void results(std::int32_t turn, bool backward, bool beside) {
    if (has(turn)) exchanges(turn, backward, true, beside);
  }
  void exchanges(std::int32_t turn, bool backward, bool results, bool beside) {
    for (const ExchangePlace& place : places_of(turn_at(backward, turn), turn)) {
      if (place.results != results) continue;
      Operation op{.kind = OperationKind::exchange_context};
      op.turn = place.number();
      op.core = true;
      const Exchange exchange{comm_of(place, backward), GroupKind::context, payload(place, backward)};
      (backward ? op.backward_exchange : op.forward_exchange) = exchange;
      (backward ? op.beside_backward : op.beside) = beside;
      ops_.push_back(std::move(op));
    }
  }
  const ContextExchange& of_rank(bool first, const ExchangePlace& place, bool backward) const {
    const ContextSides& sides = first ? first_ : last_;
    const ContextTurn& turn = (backward ? sides.backward : sides.forward)[static_cast<std::size_t>(place.turn)];
    return (place.results ? turn.results : turn.operands)[static_cast<std::size_t>(place.index)];
  }
  Comm comm_of(const ExchangePlace& place, bool backward) const { return of_rank(false, place, backward).comm; }
  double payload(const ExchangePlace& place, bool backward) const {
    double bytes = 0;
    for (const bool first : {false, true}) {
      const ContextExchange& exchange = of_rank(first, place, backward);
      if (!exchange.sends.empty()) bytes = std::max(bytes, sizes().bytes(exchange.array));
      if (!exchange.receives.empty()) bytes = std::max(bytes, sizes().bytes(exchange.received));
    }
    const Comm comm = comm_of(place, backward);
    const bool whole = comm == Comm::all_gather || comm == Comm::reduce_scatter;
    return whole ? bytes * shape_.ranks : bytes;
  }

  // ---- kernels

  template <class Args>
  KernelCall call(Args args, double count = 1) const {
    return kernel_call(std::move(args), dtype_, count);
  }
  // So many elements from one place to another.
  KernelCall copy(std::int64_t columns) const {
    return call(kernels::CopyRows{.rows = batch_ * tokens_, .columns = columns});
  }

  Operation split() const {
    Operation op{.kind = OperationKind::split_heads};
    op.core = true;
    op.forward = {copy(query_columns() + 2 * key_columns())};
    op.input_gradient = op.forward;
    return op;
  }

  // A block's kernel: all sequences at once where it has all rows of them, else one by one.
  struct Extent {
    std::int64_t queries, keys;
    bool all_queries, all_keys;
    std::int64_t batch, heads;
    double count;
  };
  Extent extent_of(const ContextBlock& block) const {
    const bool of_all = block.queries_of == kWholeSequence;  // own heads of all tokens
    const auto length = [&](std::int32_t owner) { return owner == kWholeSequence ? model_.sequence : tokens_; };
    Extent extent{.queries = block.queries.count * chunk_,
                  .keys = block.keys.count * chunk_,
                  .all_queries = block.queries.count * chunk_ == length(block.queries_of),
                  .all_keys = block.keys.count * chunk_ == length(block.keys_of),
                  .batch = batch_,
                  .heads = of_all ? heads_ / shape_.ranks : heads_,
                  .count = 1};
    if (extent.all_queries && extent.all_keys) return extent;
    extent.batch = 1;
    extent.count = static_cast<double>(batch_);
    return extent;
  }

  KernelCall attention(const ContextBlock& block, bool backward) const {
    const Extent at = extent_of(block);
    const kernels::AttentionShape shape{.batch = at.batch,
                                        .heads = at.heads,
                                        .queries = at.queries,
                                        .keys = at.keys,
                                        .head_columns = model_.head_size,
                                        .causal = block.causal,
                                        .kv_heads = at.heads * kv_heads_ / heads_};
    if (block.work == ContextWork::attention) {
      return backward ? call(kernels::AttentionBackward{.shape = shape}, at.count)
                      : call(kernels::AttentionForward{.shape = shape}, at.count);
    }
    const double pairs = static_cast<double>(at.batch * at.heads) * static_cast<double>(shape.pairs());
    const double columns = static_cast<double>(model_.head_size);
    const double rows = static_cast<double>(at.batch) * (static_cast<double>(at.queries * query_columns()) +
                                                         static_cast<double>(at.keys * key_columns()));
    // Colossal's: one product, and the scores to or from memory.
    const double passes = backward ? 2 : 1;
    return {
        OtherKernel{KernelClass::attention, dtype_, passes * 2 * pairs * columns, passes * element() * (pairs + rows)},
        at.count};
  }

  // Whether the turns that come before in this direction have a part of these chunks.
  bool has_before(std::int32_t turn, bool backward, bool of_keys, const ContextBlock& block) const {
    const auto touches = [&](const ContextBlock& other) {
      const std::int32_t owner = of_keys ? other.keys_of : other.queries_of;
      const ChunkRange& a = of_keys ? other.keys : other.queries;
      const ChunkRange& b = of_keys ? block.keys : block.queries;
      return owner == (of_keys ? block.keys_of : block.queries_of) && a.first < b.first + b.count &&
             b.first < a.first + a.count;
    };
    const std::vector<ContextTurn>& all = turns(backward);
    for (std::int32_t t = 0; t < turns_; ++t) {
      if (backward ? t <= turn : t >= turn) continue;
      const auto& blocks = all[static_cast<std::size_t>(t)].blocks;
      if (std::any_of(blocks.begin(), blocks.end(), touches)) return true;
    }
    for (const ContextBlock& other : all[static_cast<std::size_t>(turn)].blocks) {
      if (&other == &block) return false;
      if (touches(other)) return true;
    }
    return false;
  }

  Operation core(std::int32_t turn) const {
    Operation op{.kind = OperationKind::core};
    op.turn = static_cast<std::uint16_t>(turn);
    op.core = true;
    op.keeps_output = true;
    moves_keys_of_all(turn, op);
    for (const ContextBlock& block : turn_at(false, turn).blocks) {
      if (block.work == ContextWork::scores) op.kind = OperationKind::scores;
      if (block.work == ContextWork::values) op.kind = OperationKind::values;
      const Extent at = extent_of(block);
      op.forward.push_back(attention(block, false));
      if (block.work == ContextWork::attention && has_before(turn, false, false, block)) {
        op.forward.push_back(call(
            kernels::AttentionMerge{
                .batch = at.batch, .heads = at.heads, .queries = at.queries, .head_columns = model_.head_size},
            at.count));
      }
    }
    for (const ContextBlock& block : turn_at(true, turn).blocks) {
      const Extent at = extent_of(block);
      op.input_gradient.push_back(attention(block, true));
      if (has_before(turn, true, false, block)) add(op, at.batch * at.queries * query_columns(), at.count);
      if (!has_before(turn, true, true, block)) continue;
      add(op, at.batch * at.keys * key_columns(), 2 * at.count);  // keys and values
    }
    if (turn == 0) op.kept_bytes = kept_of_core();
    softmax(turn, op);
    return op;
  }
  void add(Operation& op, std::int64_t elems, double count) const {
    op.input_gradient.push_back(call(kernels::ResidualAdd{.count = elems}, count));
  }

  double kept_of_core() const {
    const double rows = static_cast<double>(batch_ * tokens_);
    const double outputs = element() * rows * static_cast<double>(query_columns());
    const double sums = 4 * rows * static_cast<double>(heads_);
    if (shape_.way == ContextWay::ulysses) return 2 * outputs + sums;  // of own heads, and of own tokens
    if (shape_.way == ContextWay::colossal) {
      return outputs + element() * rows * static_cast<double>(heads_ * model_.sequence);
    }
    return outputs + sums;
  }

  // Gathered keys into the order of the sequence, their gradients out of it; Ulysses' tokens of each rank to sequences.
  void moves_keys_of_all(std::int32_t turn, Operation& op) const {
    if (turn != 0) return;
    if (shape_.way == ContextWay::allgather) {
      op.forward.push_back(copy(2 * key_columns() * shape_.ranks));
      op.input_gradient = {op.forward.front(), op.forward.front()};
    }
    if (shape_.way == ContextWay::ulysses) {
      op.forward = {copy(query_columns()), copy(2 * key_columns()), copy(query_columns())};
      op.input_gradient = op.forward;
    }
  }

  // Between all scores and the first values.
  void softmax(std::int32_t turn, Operation& op) const {
    if (shape_.way != ContextWay::colossal || turn != shape_.ranks - 1) return;
    const double scores =
        element() * static_cast<double>(batch_ * heads_) * static_cast<double>(tokens_ * model_.sequence);
    op.forward.push_back({OtherKernel{KernelClass::pass, dtype_, 0, 2 * scores}, 1});
    op.input_gradient.push_back({OtherKernel{KernelClass::pass, dtype_, 0, 3 * scores}, 1});
  }

  // Sums of what came in the turn's results.
  void merge(std::int32_t turn, bool backward) {
    if (!has(turn)) return;
    Operation op{.kind = OperationKind::merge_context};
    op.turn = static_cast<std::uint16_t>(turn);
    op.core = true;
    std::vector<KernelCall>& calls = backward ? op.input_gradient : op.forward;
    const std::int64_t rows = batch_ * tokens_;
    for (const ContextExchange& exchange : turn_at(backward, turn).results) {
      const bool of_keys = exchange.received == ContextArray::d_keys;
      if (exchange.comm == Comm::all_to_all) {
        if (!backward) calls.push_back(copy(query_columns()));
      } else if (exchange.comm == Comm::shift && is_summed(exchange.received)) {
        const bool one =
            exchange.received == ContextArray::d_keys_only || exchange.received == ContextArray::d_values_only;
        const std::int64_t columns = of_keys ? 2 * key_columns() : one ? key_columns() : query_columns();
        calls.push_back(call(kernels::ResidualAdd{.count = rows * columns}));
      } else if (exchange.comm == Comm::shift && exchange.received == ContextArray::outputs) {
        calls.push_back(call(kernels::AttentionMerge{
            .batch = batch_, .heads = heads_, .queries = tokens_, .head_columns = model_.head_size}));
      }
    }
    if (!calls.empty()) ops_.push_back(std::move(op));
  }

  const Model& model_;
  const ContextShape shape_;
  const ContextSides last_;
  const ContextSides first_;
  const std::int32_t turns_;
  const core::DType dtype_;
  const std::int64_t batch_;
  const std::int64_t heads_;
  const std::int64_t kv_heads_;
  const std::int64_t tokens_;  // of a sequence, on a rank
  const std::int64_t chunk_;
  std::vector<Operation> ops_;
};

}  // namespace

std::int64_t context_moving_bytes(const Model& model, const Layout& layout, bool backward) {
  const auto compute = static_cast<std::int64_t>(core::size_of(layout.compute));
  const std::int64_t rows = layout.microbatch_size * model.sequence / layout.cp;
  const std::int64_t queries = compute * rows * model.heads * model.head_size / layout.tp;
  const std::int64_t keys = 2 * compute * rows * model.kv_heads * model.head_size / layout.tp;
  const std::int64_t sums = static_cast<std::int64_t>(sizeof(float)) * rows * model.heads / layout.tp;
  switch (layout.cp_way) {
    case ContextWay::allgather:
      return backward ? queries + 4 * (layout.cp * keys) : queries + sums + 2 * (layout.cp * keys);
    case ContextWay::ulysses:
      return backward ? 3 * queries + keys : queries + keys;
    case ContextWay::lightseq:
      return backward ? 7 * queries + 4 * keys + 3 * sums : 5 * queries + 3 * sums + 2 * keys;
    default:
      return backward ? 2 * queries + 5 * keys + sums : queries + sums + 2 * keys;
  }
}

std::vector<Operation> context_operations(const Model& model, const Layout& layout) {
  return ContextOperations(model, layout).all();
}

}  // namespace lockstep::workload
