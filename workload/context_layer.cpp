#include "workload/context_layer.h"

#include <string>

#include "workload/rules.h"

namespace lockstep::workload {
std::int64_t ContextLayer::elems(ContextArray array) const {
  switch (array) {
    case ContextArray::keys:
    case ContextArray::d_keys:
      return 2 * rows() * key_columns();
    case ContextArray::keys_only:
    case ContextArray::values_only:
    case ContextArray::d_keys_only:
    case ContextArray::d_values_only:
      return rows() * key_columns();
    case ContextArray::sums:
      return rows() * heads;
    default:
      return rows() * query_columns();
  }
}

core::DType ContextLayer::dtype_of(ContextArray array) const {
  return array == ContextArray::sums ? core::DType::f32 : dtype;
}

std::int64_t ContextLayer::bytes(ContextArray array) const {
  return static_cast<std::int64_t>(core::size_of(dtype_of(array))) * elems(array);
}

ContextLayer context_layer_of(const Model& model, const Layout& layout, std::int32_t rank) {
  return {.shape = context_of(layout),
          .rank = rank,
          .batch = layout.microbatch_size,
          .length = model.sequence,
          .heads = model.heads / layout.tp,
          .kv_heads = model.kv_heads / layout.tp,
          .head_columns = model.head_size,
          .dtype = layout.compute};
}

std::string why_invalid(const ContextLayer& layer) {
  const ContextShape& shape = layer.shape;
  if (std::string reason = why_invalid(shape); !reason.empty()) return reason;
  const bool in_pairs = chunks_per_rank(shape.way) == 2 && shape.ranks > 1;
  const std::string what = in_pairs ? "2 x cp (cp_way=" + std::string(name_of(shape.way)) + ")" : "cp";
  if (std::string cut = must_divide(what, in_pairs ? chunks_of(shape) : shape.ranks, "sequence", layer.length);
      !cut.empty()) {
    return cut;
  }
  if (shape.way != ContextWay::ulysses) return "";
  const std::string heads = "cp with cp_way=ulysses, which shares out heads,";
  if (std::string cut = must_divide(heads, shape.ranks, "heads / tp", layer.heads); !cut.empty()) return cut;
  return must_divide(heads, shape.ranks, "kv_heads / tp", layer.kv_heads);
}

ContextRows rows_of(const ContextLayer& layer, const ContextBlock& block) {
  const auto length_of = [&](std::int32_t owner) { return owner == kWholeSequence ? layer.length : layer.tokens(); };
  const std::int64_t chunk = layer.chunk();
  return {.first_query = block.queries.first * chunk,
          .queries = block.queries.count * chunk,
          .all_queries = length_of(block.queries_of),
          .first_key = block.keys.first * chunk,
          .keys = block.keys.count * chunk,
          .all_keys = length_of(block.keys_of)};
}

kernels::AttentionShape call_shape(const ContextLayer& layer, const ContextBlock& block) {
  const ContextRows rows = rows_of(layer, block);
  const std::int64_t parts = block.queries_of == kWholeSequence ? layer.shape.ranks : 1;  // parts of the heads
  return {.batch = batch_of_call(layer, rows),
          .heads = layer.heads / parts,
          .queries = rows.queries,
          .keys = rows.keys,
          .head_columns = layer.head_columns,
          .causal = block.causal,
          .kv_heads = layer.kv_heads / parts};
}

double chunk_pairs(const ContextTurn& turn) {
  double pairs = 0;
  for (const ContextBlock& block : turn.blocks) {
    const double queries = block.queries.count;
    const double keys = block.keys.count;
    pairs += block.causal ? queries * (keys - queries) + queries * queries / 2 : queries * keys;
  }
  return pairs;
}

double chunk_pairs(const ContextList& list, std::int32_t rank) {
  double pairs = 0;
  for (std::int32_t t = 0; t < list.turns(); ++t) pairs += chunk_pairs(list.turn(rank, false, t));
  return pairs;
}

double bytes_sent(const ContextExchange& exchange, const ContextLayer& layer) {
  const auto array = static_cast<double>(layer.bytes(exchange.array));
  const double ranks = layer.shape.ranks;
  switch (exchange.comm) {
    case schedules::Comm::shift:
      return exchange.sends.empty() ? 0 : array;
    case schedules::Comm::all_to_all:
      return array * (ranks - 1) / ranks;
    default:
      return array * (ranks - 1);
  }
}

ContextBytes bytes_sent(const ContextList& list, const ContextLayer& layer) {
  ContextBytes bytes;
  for (const bool backward : {false, true}) {
    for (std::int32_t t = 0; t < list.turns(); ++t) {
      const ContextTurn& turn = list.turn(layer.rank, backward, t);
      for (const auto* exchanges : {&turn.operands, &turn.results}) {
        for (const ContextExchange& exchange : *exchanges) {
          (backward ? bytes.backward : bytes.forward) += bytes_sent(exchange, layer);
        }
      }
    }
  }
  return bytes;
}

}  // namespace lockstep::workload
