#include "kernels/attention/attention.h"

#include <cmath>

#include "kernels/attention/attention_pieces.h"

namespace lockstep::kernels {
namespace {

template <class Args>
Cost cost_of_attention(const Args& args, double pair_flops, double query_flops) {
  const AttentionShape& shape = args.shape;
  const auto heads = static_cast<double>(shape.batch * shape.heads);
  const double flops =
      heads * (pair_flops * static_cast<double>(shape.pairs()) + query_flops * static_cast<double>(shape.queries));
  return cost_of_operands(flops, args);
}

}  // namespace

float AttentionShape::factor() const {
  return scale == 0 ? 1 / std::sqrt(static_cast<float>(head_columns)) : scale;
}

Rows AttentionShape::rows_of(std::string_view operand) const {
  if (operand == "o" || operand == "lse" || operand == "d_o") return {};
  const bool of_queries = operand == "q" || operand == "dq";
  return of_queries ? Rows{.elems = row(), .stride = stride()} : Rows{.elems = key_row(), .stride = key_stride()};
}

void AttentionShape::check(std::string_view kernel) const {
  check_sizes(kernel, {{"batch", batch}, {"heads", heads}, {"queries", queries}});
  check_at_least(kernel, "keys", keys, causal ? queries : 1);
  check_at_least(kernel, "head_columns", head_columns, 1);
  if (qkv_stride != 0) check_at_least(kernel, "qkv_stride", qkv_stride, row());
  check_at_least(kernel, "kv_heads", kv_heads, 0);
  check_divides(kernel, "kv_heads", key_heads(), "heads", heads);
}

// FLOPs per pair: q . k and its scale, - max, exp, + of the sum, weight * v. Per query: / of o, log, +.
Cost cost_of(const AttentionForward& args) {
  const auto columns = static_cast<double>(args.shape.head_columns);
  return cost_of_attention(args, 4 * columns + 4, columns + 2);
}

// FLOPs per pair: q . k and its scale, - lse, exp; v . d_o, - delta, * weight, * scale; dv, dk, dq. Per query: o . d_o.
Cost cost_of(const AttentionBackward& args) {
  const auto columns = static_cast<double>(args.shape.head_columns);
  return cost_of_attention(args, 10 * columns + 6, 2 * columns);
}

ForwardMemory::ForwardMemory(const AttentionShape& shape, float* memory) {
  ScratchCutter cutter(memory);
  const std::int64_t row = padded_columns(shape.head_columns);
  k = cutter.take(shape.keys * row);
  v = cutter.take(shape.keys * row);
  q = cutter.take(kTile * row);
  qt = cutter.take(kTile * shape.head_columns);
  weights = cutter.take(kTile * kTile);
  o = cutter.take(kTile * row);
  max = cutter.take(kTile);
  sum = cutter.take(kTile);
  decrease = cutter.take(kTile);
  elems = cutter.used();
}

BackwardMemory::BackwardMemory(const AttentionShape& shape, float* memory) {
  ScratchCutter cutter(memory);
  const std::int64_t row = padded_columns(shape.head_columns);
  const std::int64_t queries = tiles_of(shape.queries) * kTile;
  k = cutter.take(shape.keys * row);
  v = cutter.take(shape.keys * row);
  q = cutter.take(queries * row);
  d_o = cutter.take(queries * row);
  qt = cutter.take(queries * shape.head_columns);
  d_ot = cutter.take(queries * shape.head_columns);
  lse = cutter.take(queries);
  delta = cutter.take(queries);
  weights = cutter.take(kTile * kTile);
  d_scores = cutter.take(kTile * kTile);
  dq = cutter.take(queries * row);
  dk = cutter.take(gathered_keys(shape) * row);
  dv = cutter.take(gathered_keys(shape) * row);
  elems = cutter.used();
}

namespace {

// Calls run(args, piece, memory) for each piece of each head of keys.
template <class Memory, class Args, class Run>
void run_pieces(const Args& args, ThreadPool& pool, std::int64_t pieces_per_head, const Run& run) {
  const AttentionShape& shape = args.shape;
  const std::size_t elems = Memory(shape).elems;
  const std::int64_t heads = shape.key_heads();
  pool.for_pieces(shape.batch * heads * pieces_per_head, [&](std::int64_t piece, int thread) {
    const std::int64_t head = piece / pieces_per_head;
    const Memory memory(shape, pool.scratch_of<float>(thread, elems).data());
    run(args, AttentionPiece{head / heads, head % heads, piece % pieces_per_head, pieces_per_head}, memory);
  });
}

}  // namespace

// A piece is a head of keys or, if there are few heads, every n-th of its tiles of queries, because later tiles see
// more keys.
void run_cpu(const AttentionForward& args, ThreadPool& pool) {
  const AttentionShape& shape = args.shape;
  const std::int64_t heads = shape.batch * shape.key_heads();
  constexpr std::int64_t kPiecesPerThread = 4;
  const std::int64_t wanted = (kPiecesPerThread * pool.size() + heads - 1) / heads;
  const std::int64_t pieces_per_head = pool.size() == 1 ? 1 : std::min(wanted, tiles_of(shape.queries));
  run_pieces<ForwardMemory>(args, pool, pieces_per_head, run_forward_piece);
}

// A piece is a head of keys: dq sums over key tiles, dk and dv over query tiles and heads, all in a fixed order.
void run_cpu(const AttentionBackward& args, ThreadPool& pool) {
  run_pieces<BackwardMemory>(args, pool, 1, run_backward_piece);
}

}  // namespace lockstep::kernels
