#include "workload/context_layer.h"

namespace lockstep::workload {
namespace {

std::string must_divide(const std::string& what, std::int64_t value, const char* of, std::int64_t total) {
  if (total % value == 0) return "";
  std::string allowed;
  for (std::int64_t d = 1; d <= total && d <= 4096; ++d) {
    if (total % d == 0 && allowed.size() < 60) allowed += " " + std::to_string(d);
  }
  return what + " is " + std::to_string(value) + ", and " + of + " is " + std::to_string(total) +
         "; allowed:" + allowed;
}

}  // namespace

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
  const bool in_pairs = chunks_a_rank(shape.way) == 2 && shape.ranks > 1;
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

}  // namespace lockstep::workload
