#include "kernels/attention/attention_tiled.h"

namespace lockstep::kernels {
namespace {

core::BFloat16* take_bf16(ScratchCutter& cutter, std::int64_t elems) {
  return reinterpret_cast<core::BFloat16*>(cutter.take(elems / 2));
}

}  // namespace

TiledForwardMemory::TiledForwardMemory(const AttentionShape& shape, float* memory) {
  ScratchCutter cutter(memory);
  const std::int64_t columns = whole_blocks(shape.head_columns);
  const std::int64_t keys = tiles_of(shape.keys) * kTile;
  k = take_bf16(cutter, keys * columns);
  vt = take_bf16(cutter, keys * columns);
  rows = take_bf16(cutter, kTile * columns);
  pairs = take_bf16(cutter, kTile * columns);
  qt_pairs = take_bf16(cutter, kTile * columns);
  weights = take_bf16(cutter, kTile * kTile);
  scores = cutter.take(kTile * kTile);
  ot = cutter.take(kTile * columns);
  o = cutter.take(kTile * columns);
  max = cutter.take(kTile);
  sum = cutter.take(kTile);
  elems = cutter.used();
}

TiledBackwardMemory::TiledBackwardMemory(const AttentionShape& shape, float* memory) {
  ScratchCutter cutter(memory);
  const std::int64_t columns = whole_blocks(shape.head_columns);
  const std::int64_t queries = tiles_of(shape.queries) * kTile;
  rows = take_bf16(cutter, kTile * columns);
  pairs = take_bf16(cutter, kTile * columns);
  q_pairs = take_bf16(cutter, queries * columns);
  qt_pairs = take_bf16(cutter, queries * columns);
  d_o_pairs = take_bf16(cutter, queries * columns);
  d_ot_pairs = take_bf16(cutter, queries * columns);
  k = take_bf16(cutter, kTile * columns);
  kt = take_bf16(cutter, kTile * columns);
  v = take_bf16(cutter, kTile * columns);
  weights = take_bf16(cutter, kTile * kTile);
  d_scores = take_bf16(cutter, kTile * kTile);
  score_pairs = take_bf16(cutter, kTile * kTile);
  lse = cutter.take(queries);
  delta = cutter.take(queries);
  scores = cutter.take(kTile * kTile);
  d_weights = cutter.take(kTile * kTile);
  dqt = cutter.take(queries * columns);
  dq = cutter.take(kTile * columns);
  dk = cutter.take(gathered_keys(shape) * columns);
  dv = cutter.take(gathered_keys(shape) * columns);
  elems = cutter.used();
}

}  // namespace lockstep::kernels
