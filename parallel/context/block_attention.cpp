#include "parallel/context/attention_forms.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention_merge/attention_merge.h"
#include "kernels/residual/residual.h"

namespace lockstep::parallel {
namespace {

using schedules::Comm;
using workload::ContextBlock;
using workload::ContextExchange;
using workload::ContextMessage;
using workload::ExchangePosition;
using workload::kWholeSequence;

// The forms of context parallelism in which ranks keep their tokens: ring, zigzag, lightseq, and all-gather of keys.
class BlockAttention final : public ContextAttention {
 public:
  BlockAttention(const ContextPlan& plan, const Workspace& workspace)
      : plan_(plan), layer_(plan.layer()), workspace_(workspace), shelves_(plan, workspace) {}

  void split(kernels::In qkv) override {
    const std::int64_t fused = layer_.fused_columns();
    const std::int64_t keys = layer_.key_columns();
    const Tensor& q = held_.put(own(Array::queries), make(Array::queries, layer_.elems(Array::queries)));
    const Tensor& kv = held_.put(own(Array::keys), make(Array::keys, layer_.elems(Array::keys)));
    const std::int64_t rows = layer_.rows();
    copy_matrix(workspace_.where, rows, layer_.query_columns(), qkv, {0, fused}, q.out(), {});
    copy_matrix(workspace_.where, rows, keys, qkv, {layer_.query_columns(), fused}, kv.out(), {});
    copy_matrix(workspace_.where, rows, keys, qkv, {layer_.query_columns() + keys, fused}, kv.out(), {rows * keys});
  }
  void core(std::int32_t turn) override {
    shelves_.give_up(false, Moment::blocks_begin, turn);
    if (gathered_.given()) order_keys();
    for (const ContextBlock& block : plan_.turn(false, turn).blocks) forward_block(block);
    held_.take({Array::keys, kWholeSequence});
    shelves_.give_up(false, Moment::blocks_end, turn);
  }
  // Merges outputs of this rank's queries over keys of other ranks, which those ranks have computed.
  void merge(std::int32_t turn) override {
    for (const ContextExchange& exchange : plan_.turn(false, turn).results) {
      if (exchange.received != Array::outputs || exchange.receives.empty()) continue;
      const Tensor part_o = shelves_.arrived.take(own(Array::outputs));
      const Tensor part_sums = shelves_.arrived.take(own(Array::sums));
      kernels::AttentionMerge merge{.batch = layer_.batch,
                                    .heads = layer_.heads,
                                    .queries = layer_.tokens(),
                                    .head_columns = layer_.head_columns};
      merge.o = held_.at(own(Array::outputs)).inout();
      merge.lse = held_.at(own(Array::sums)).inout();
      merge.part_o = part_o.in();
      merge.part_lse = part_sums.in();
      kernels::run(merge, workspace_.where);
    }
  }
  kernels::In output() const override { return held_.at(own(Array::outputs)).in(); }
  void forget() override {
    for (const Array array : {Array::queries, Array::keys, Array::sums}) held_.take(own(array));
  }
  void give_up_output() override { held_.take(own(Array::outputs)); }

  void begin_backward(kernels::In d_o) override { d_o_ = d_o; }
  void core_gradient(std::int32_t turn) override {
    shelves_.give_up(true, Moment::blocks_begin, turn);
    if (gathered_.given()) order_keys();
    for (const ContextBlock& block : plan_.turn(true, turn).blocks) backward_block(block);
    held_.take({Array::keys, kWholeSequence});
    if (held_.find({Array::d_keys, kWholeSequence}) != nullptr) unorder_gradients();
    shelves_.give_up(true, Moment::blocks_end, turn);
  }
  void merge_gradients(std::int32_t turn) override {
    shelves_.take_sums(turn, [&](const Key& key, Tensor arrived) {
      if (const Tensor* const sum = held_.find(key)) {
        add(arrived.in(), sum->out());
      } else {
        held_.put(key, std::move(arrived));
      }
    });
  }
  void join(kernels::Out d_qkv) override {
    const std::int64_t fused = layer_.fused_columns();
    const std::int64_t keys = layer_.key_columns();
    const std::int64_t rows = layer_.rows();
    const kernels::In dq = held_.at(own(Array::d_queries)).in();
    const kernels::In d_keys = held_.at(own(Array::d_keys)).in();
    copy_matrix(workspace_.where, rows, layer_.query_columns(), dq, {}, d_qkv, {0, fused});
    copy_matrix(workspace_.where, rows, keys, d_keys, {}, d_qkv, {layer_.query_columns(), fused});
    copy_matrix(workspace_.where, rows, keys, d_keys, {rows * keys}, d_qkv, {layer_.query_columns() + keys, fused});
    for (const Array array : {Array::queries, Array::keys, Array::sums, Array::d_queries, Array::d_keys}) {
      held_.take(own(array));
    }
  }

  Exchange exchange(bool backward, const workload::ExchangePosition& place) override {
    const ContextExchange& exchange = plan_.exchange(backward, place);
    if (exchange.comm == Comm::all_gather) {
      gathered_ = make(Array::keys, layer_.shape.ranks * layer_.elems(Array::keys));
      return {held_.at(own(Array::keys)).in(), gathered_.out(), nullptr};
    }
    if (exchange.comm == Comm::reduce_scatter) {
      const Tensor& sum = held_.put(own(Array::d_keys), make(Array::d_keys, layer_.elems(Array::d_keys)));
      return {to_reduce_.in(), sum.out(), nullptr};
    }
    return shelves_.begin_shift(backward, place, d_o_);
  }
  void exchanged(bool backward, const workload::ExchangePosition& place) override {
    const Comm comm = plan_.exchange(backward, place).comm;
    if (comm == Comm::all_gather) return;
    if (comm == Comm::shift) return shelves_.end_shift(backward, place);
    to_reduce_.reset();
  }

 private:
  using Array = workload::ContextArray;
  using Key = Shelf::Key;

  using Moment = workload::ContextMoment;
  using Rows = workload::ContextRows;

  // Sequences that one call of a block's kernel computes.
  struct Part {
    std::int64_t sequence, batch;
  };

  Key own(Array array) const { return {array, layer_.rank}; }
  // Calls call(rows, part) for each call of the block's kernel.
  template <class Call>
  void for_parts(const workload::ContextBlock& block, const Call& call) const {
    const Rows rows = workload::rows_of(layer_, block);
    const std::int64_t batch = workload::batch_of_call(layer_, rows);
    for (std::int64_t sequence = 0; sequence < layer_.batch; sequence += batch) call(rows, Part{sequence, batch});
  }
  Tensor make(Array array, std::int64_t elems) const {
    return workspace_.memory.make(MemoryKind::activations, layer_.dtype_of(array), elems);
  }
  kernels::In queries_in(const Tensor& array, const Rows& rows, const Part& part) const {
    const std::int64_t columns = layer_.query_columns();
    return array.in((part.sequence * rows.all_queries + rows.first_query) * columns,
                    part.batch * rows.queries * columns);
  }
  kernels::Out queries_out(const Tensor& array, const Rows& rows, const Part& part) const {
    const std::int64_t columns = layer_.query_columns();
    return array.out((part.sequence * rows.all_queries + rows.first_query) * columns,
                     part.batch * rows.queries * columns);
  }
  // Position of the first of a part's keys; its values are at the same distance from the first value.
  std::int64_t key_place(const Rows& rows, const Part& part) const {
    return (part.sequence * rows.all_keys + rows.first_key) * layer_.key_columns();
  }
  // Position in sums, which are [batch, heads, queries].
  std::int64_t sums_place(const Rows& rows, const Part& part) const {
    return part.sequence * layer_.heads * rows.all_queries + rows.first_query;
  }

  void forward_block(const workload::ContextBlock& block) {
    const Key outputs{Array::outputs, block.queries_of};
    if (held_.find(outputs) == nullptr) {
      held_.put(outputs, make(Array::outputs, layer_.elems(Array::outputs)));
      held_.put({Array::sums, block.queries_of}, make(Array::sums, layer_.elems(Array::sums)));
    }
    for_parts(block, [&](const Rows& rows, const Part& part) { forward_part(block, rows, part); });
  }
  void forward_part(const workload::ContextBlock& block, const Rows& rows, const Part& part) {
    const bool is_first = !block.merges_queries;
    const Tensor& o = held_.at({Array::outputs, block.queries_of});
    const Tensor& sums = held_.at({Array::sums, block.queries_of});
    const Tensor& keys = held_.at({Array::keys, block.keys_of});
    const std::int64_t num_sums = part.batch * layer_.heads * rows.queries;
    Tensor part_o;
    Tensor part_sums;
    if (!is_first) part_o = make(Array::outputs, part.batch * rows.queries * layer_.query_columns());
    if (!is_first || !rows.has_all_queries()) part_sums = make(Array::sums, num_sums);
    const std::int64_t values = layer_.batch * rows.all_keys * layer_.key_columns();
    const std::int64_t key_elems = part.batch * rows.keys * layer_.key_columns();
    const std::int64_t at = sums_place(rows, part);
    kernels::run(kernels::AttentionForward{.shape = workload::call_shape(layer_, block),
                                           .q = queries_in(held_.at({Array::queries, block.queries_of}), rows, part),
                                           .k = keys.in(key_place(rows, part), key_elems),
                                           .v = keys.in(values + key_place(rows, part), key_elems),
                                           .o = is_first ? queries_out(o, rows, part) : part_o.out(),
                                           .lse = part_sums.given() ? part_sums.out() : sums.out(at, num_sums)},
                 workspace_.where);
    if (is_first) {
      if (part_sums.given()) {
        copy_matrix(workspace_.where, layer_.heads, rows.queries, part_sums.in(), {}, sums.out(),
                    {at, rows.all_queries});
      }
      return;
    }
    kernels::AttentionMerge merge{.batch = part.batch,
                                  .heads = layer_.heads,
                                  .queries = rows.queries,
                                  .head_columns = layer_.head_columns,
                                  .lse_stride = rows.all_queries};
    const kernels::Out into = queries_out(o, rows, part);
    merge.o = {into.data, into.dtype, into.elems};
    merge.lse = sums.inout(at, (part.batch * layer_.heads - 1) * rows.all_queries + rows.queries);
    merge.part_o = part_o.in();
    merge.part_lse = part_sums.in();
    kernels::run(merge, workspace_.where);
  }
  void backward_block(const workload::ContextBlock& block) {
    const Rows rows = workload::rows_of(layer_, block);
    gradient_tensor({Array::d_queries, block.queries_of}, rows.has_all_queries());
    gradient_tensor({Array::d_keys, block.keys_of}, rows.has_all_keys());
    for_parts(block, [&](const Rows& same, const Part& part) { backward_part(block, same, part); });
  }
  void backward_part(const workload::ContextBlock& block, const Rows& rows, const Part& part) {
    const bool first_of_queries = !block.merges_queries;
    const bool first_of_keys = !block.adds_keys;
    const std::int32_t owner = block.queries_of;
    const Tensor& keys = held_.at({Array::keys, block.keys_of});
    const Tensor& sums = held_.at({Array::sums, owner});
    const Tensor& dq = held_.at({Array::d_queries, owner});
    const Tensor& d_keys = held_.at({Array::d_keys, block.keys_of});
    const std::int64_t query_elems = part.batch * rows.queries * layer_.query_columns();
    const std::int64_t key_elems = part.batch * rows.keys * layer_.key_columns();
    const std::int64_t num_sums = part.batch * layer_.heads * rows.queries;
    const std::int64_t values = layer_.batch * rows.all_keys * layer_.key_columns();
    const std::int64_t key_at = key_place(rows, part);
    const std::int64_t sums_at = sums_place(rows, part);

    Tensor part_sums;  // contiguous
    if (!rows.has_all_queries()) {
      part_sums = make(Array::sums, num_sums);
      copy_matrix(workspace_.where, layer_.heads, rows.queries, sums.in(), {sums_at, rows.all_queries}, part_sums.out(),
                  {});
    }
    Tensor part_dq;
    Tensor part_d_keys;
    if (!first_of_queries) part_dq = make(Array::d_queries, query_elems);
    if (!first_of_keys) part_d_keys = make(Array::d_keys, 2 * key_elems);
    const kernels::In d_o = owner == layer_.rank ? d_o_ : held_.at({Array::d_outputs, owner}).in();
    const std::int64_t query_at = (part.sequence * rows.all_queries + rows.first_query) * layer_.query_columns();
    kernels::run(
        kernels::AttentionBackward{
            .shape = workload::call_shape(layer_, block),
            .q = queries_in(held_.at({Array::queries, owner}), rows, part),
            .k = keys.in(key_at, key_elems),
            .v = keys.in(values + key_at, key_elems),
            .o = queries_in(held_.at({Array::outputs, owner}), rows, part),
            .lse = part_sums.given() ? part_sums.in() : sums.in(sums_at, num_sums),
            .d_o = from(d_o, query_at, query_elems),
            .dq = first_of_queries ? queries_out(dq, rows, part) : part_dq.out(),
            .dk = first_of_keys ? d_keys.out(key_at, key_elems) : part_d_keys.out(0, key_elems),
            .dv = first_of_keys ? d_keys.out(values + key_at, key_elems) : part_d_keys.out(key_elems, key_elems)},
        workspace_.where);
    if (!first_of_queries) add(part_dq.in(), queries_out(dq, rows, part));
    if (first_of_keys) return;
    add(part_d_keys.in(0, key_elems), d_keys.out(key_at, key_elems));
    add(part_d_keys.in(key_elems, key_elems), d_keys.out(values + key_at, key_elems));
  }
  const Tensor& gradient_tensor(const Key& key, bool covers_all) {
    if (const Tensor* const found = held_.find(key)) return *found;
    const std::int64_t owners = key.owner == kWholeSequence ? layer_.shape.ranks : 1;
    const std::int64_t elems = owners * layer_.elems(key.array);
    return held_.put(key, covers_all ? make(key.array, elems)
                                     : workspace_.memory.make_zeroed(MemoryKind::activations, layer_.dtype, elems));
  }
  void add(kernels::In term, kernels::Out sum) const {
    kernels::run(kernels::ResidualAdd{.count = term.elems, .a = {sum.data, sum.dtype, sum.elems}, .b = term, .y = sum},
                 workspace_.where);
  }

  // ---- gathered keys, in sequence order and as ranks have them
  void order_keys() {
    const Tensor& ordered =
        held_.put({Array::keys, kWholeSequence}, make(Array::keys, layer_.shape.ranks * layer_.elems(Array::keys)));
    for_chunks_of_all([&](const Submatrix& gathered, const Submatrix& in_order) {
      copy_matrix(workspace_.where, 2 * layer_.batch, layer_.chunk() * layer_.key_columns(), gathered_.in(), gathered,
                  ordered.out(), in_order);
    });
    gathered_.reset();
  }
  void unorder_gradients() {
    const Tensor ordered = held_.take({Array::d_keys, kWholeSequence});
    to_reduce_ = make(Array::d_keys, ordered.elems());
    for_chunks_of_all([&](const Submatrix& gathered, const Submatrix& in_order) {
      copy_matrix(workspace_.where, 2 * layer_.batch, layer_.chunk() * layer_.key_columns(), ordered.in(), in_order,
                  to_reduce_.out(), gathered);
    });
  }
  // Calls visit(position as gathered, position in sequence order) for each chunk: rows of a chunk's columns, for keys
  // and values of each sequence.
  template <class Visit>
  void for_chunks_of_all(const Visit& visit) const {
    const std::int64_t columns = layer_.chunk() * layer_.key_columns();
    for (std::int32_t rank = 0; rank < layer_.shape.ranks; ++rank) {
      const std::vector<std::int32_t> chunks = workload::chunks_of(layer_.shape, rank);
      for (std::size_t i = 0; i < chunks.size(); ++i) {
        visit(Submatrix{rank * layer_.elems(Array::keys) + static_cast<std::int64_t>(i) * columns,
                        layer_.tokens() * layer_.key_columns()},
              Submatrix{chunks[i] * columns, layer_.length * layer_.key_columns()});
      }
    }
  }

  const ContextPlan& plan_;
  const ContextLayer& layer_;
  const Workspace workspace_;
  kernels::In d_o_;
  ContextShelves shelves_;
  Shelf& held_ = shelves_.held;
  Tensor gathered_;   // in the order of the gather: rank by rank
  Tensor to_reduce_;  // their gradients, in the same order
};

}  // namespace

std::unique_ptr<ContextAttention> make_block_attention(const ContextPlan& plan, const Workspace& workspace) {
  return std::make_unique<BlockAttention>(plan, workspace);
}

}  // namespace lockstep::parallel
