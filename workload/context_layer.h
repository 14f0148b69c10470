// The attention of a layer on one context-parallel rank: its sizes, the sizes of the arrays in its list
// (context_list.h), and the position of a block's rows in them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "kernels/attention/attention.h"
#include "workload/context_list.h"
#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::workload {

// The same for all layers and microbatches of a rank.
struct ContextLayer {
  ContextShape shape;
  std::int32_t rank = 0;  // index among the context-parallel ranks
  std::int64_t batch = 1;
  std::int64_t length = 0;  // tokens of a whole sequence; a multiple of the number of chunks
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t head_columns = 1;
  core::DType dtype = core::DType::f32;

  std::int64_t tokens() const { return length / shape.ranks; }  // per sequence, on each rank
  std::int64_t chunk() const { return length / chunks_of(shape); }
  std::int64_t query_columns() const { return heads * head_columns; }
  std::int64_t key_columns() const { return kv_heads * head_columns; }
  std::int64_t fused_columns() const { return query_columns() + 2 * key_columns(); }
  std::int64_t rows() const { return batch * tokens(); }
  std::int64_t elems(ContextArray array) const;  // on one rank
  core::DType dtype_of(ContextArray array) const;
  std::int64_t bytes(ContextArray array) const;
};
// For the heads of one tensor-parallel rank.
ContextLayer context_layer_of(const Model& model, const Layout& layout, std::int32_t rank);
std::string why_invalid(const ContextLayer& layer);  // empty: there is a list

// Position of a block's rows in its owners' arrays.
struct ContextRows {
  std::int64_t first_query, queries, all_queries;  // per sequence
  std::int64_t first_key, keys, all_keys;
  bool has_all_queries() const { return queries == all_queries; }
  bool has_all_keys() const { return keys == all_keys; }
};
ContextRows rows_of(const ContextLayer& layer, const ContextBlock& block);
// Sequences per call of a block's kernel: all if the block has all rows of each, otherwise one.
inline std::int64_t batch_of_call(const ContextLayer& layer, const ContextRows& rows) {
  return rows.has_all_queries() && rows.has_all_keys() ? layer.batch : 1;
}
// Shape of the kernel's call, with the heads that the rank has for the block's queries.
kernels::AttentionShape call_shape(const ContextLayer& layer, const ContextBlock& block);

// ---- counts

// Pairs of a query chunk and a key chunk that a rank computes in a turn; the diagonal of a causal block counts as a
// half.
double chunk_pairs(const ContextTurn& turn);
// Total of a rank.
double chunk_pairs(const ContextList& list, std::int32_t rank);

// Bytes that a rank sends in an exchange; for gathers and reductions, with algorithms of minimal traffic.
double bytes_sent(const ContextExchange& exchange, const ContextLayer& layer);
struct ContextBytes {
  double forward = 0;
  double backward = 0;
};
// Bytes that the layer's rank sends in a pass.
ContextBytes bytes_sent(const ContextList& list, const ContextLayer& layer);

}  // namespace lockstep::workload
