// Forward of one block on compute capability 9.0a: 128 queries of a head are multiplied with all keys that they see,
// 128 at a time.
//
// The producer's one thread keeps two tiles of keys and two of values in flight. A consumer has 64 of the queries, a
// warp 16. The scores of the next keys and the products with the current values are computed while the current scores
// become weights (arXiv:2407.08608, algorithm 2); and the two consumers issue products alternately, so that the softmax
// of one overlaps with the products of the other (section 3.1).
//
// Both passes are after Shah, Bikshandi, Zhang, Thakkar, Ramani, Dao 2024, arXiv:2407.08608 (FlashAttention-3),
// sections 3.1 and 3.2: one warpgroup loads tiles by the copy engine (TMA), two multiply them (wgmma). The kernels are
// templates over their lane: HopperLane on a device, EmulatedHopperLane on the CPU.
#pragma once

#include "kernels/attention/attention_forward.cuh"
#include "kernels/attention/attention_tiles.cuh"
#include "kernels/base/tensor_core_tiles.cuh"
#include "kernels/base/tensor_map.h"

namespace lockstep::kernels {

// Both passes use these functions beyond base/tensor_core_tiles.cuh.

// Converts sums of 16 rows of a warp to the first factor of a product: kBlocks / 2 fragments of mma.m16n8k16.
template <class T, class Lane, int kBlocks>
__device__ void round_factors(Lane& /*lane*/, const float (&sums)[kBlocks][4],
                              std::uint32_t (&factors)[kBlocks / 2][4]) {
#pragma unroll
  for (int k = 0; k < kBlocks / 2; ++k) {
    factors[k][0] = Lane::template pack<T>(sums[2 * k][0], sums[2 * k][1]);
    factors[k][1] = Lane::template pack<T>(sums[2 * k][2], sums[2 * k][3]);
    factors[k][2] = Lane::template pack<T>(sums[2 * k + 1][0], sums[2 * k + 1][1]);
    factors[k][3] = Lane::template pack<T>(sums[2 * k + 1][2], sums[2 * k + 1][3]);
  }
}

// Tensors of heads in the form that the copy engine takes.
inline HeadTensor queries_tensor(const AttentionShape& s, const void* data, int box_rows) {
  return {data, s.head_columns, s.heads, s.queries, s.batch, 2 * s.stride(), box_rows};
}
inline HeadTensor keys_tensor(const AttentionShape& s, const void* data, int box_rows) {
  return {data, s.head_columns, s.key_heads(), s.keys, s.batch, 2 * s.key_stride(), box_rows};
}
inline HeadTensor packed_tensor(const AttentionShape& s, const void* data, int box_rows) {
  return {data, s.head_columns, s.heads, s.queries, s.batch, 2 * s.row(), box_rows};
}

// kRows: number of queries per consumer.
template <class T, int kColumnsOf>
struct HopperForwardTiles : TileSizes<kColumnsOf, 1, 128, 2> {
  using Sizes = TileSizes<kColumnsOf, 1, 128, 2>;
  using Value = T;
  static constexpr int kBlockRows = kConsumers * Sizes::kRows;
  static constexpr int kFactors = Sizes::kBlocks / 2;
};

template <class T, class Map>
struct HopperForwardOperands {
  AttentionGeometry geometry;
  Map q;
  Map k;
  Map v;
  T* o;
  float* lse;
};

// map_of(tensor) returns a Map.
template <class Tiles, class Map, class MapOf>
HopperForwardOperands<typename Tiles::Value, Map> hopper_operands(const AttentionForward& args, MapOf map_of) {
  using T = typename Tiles::Value;
  const AttentionShape& s = args.shape;
  return {geometry_of<T>(s, {args.q.data, args.k.data, args.v.data, args.o.data}),
          map_of(queries_tensor(s, args.q.data, Tiles::kBlockRows)),
          map_of(keys_tensor(s, args.k.data, Tiles::kStreamed)),
          map_of(keys_tensor(s, args.v.data, Tiles::kStreamed)),
          args.o.as<T>(),
          args.lse.as<float>()};
}

// Shared memory: tiles, then barriers.
template <class Tiles>
struct HopperForwardShared {
  static constexpr int kQueryBytes = kTileBytes<Tiles::kBlockRows, Tiles::kColumns>;
  static constexpr int kKeyBytes = kTileBytes<Tiles::kStreamed, Tiles::kColumns>;
  static constexpr int kTilesBytes = kQueryBytes + 2 * Tiles::kStages * kKeyBytes;
  static constexpr int kBytes = kTilesBytes + 2 * RingBarriers<Tiles::kStages>::kBytes + 8;

  std::uint32_t address;

  __device__ std::uint32_t at(int offset) const { return address + static_cast<std::uint32_t>(offset); }
  __device__ TileInShared<Tiles::kBlockRows> queries() const { return {address}; }
  __device__ TileInShared<Tiles::kStreamed> keys(int stage) const { return {at(kQueryBytes + stage * kKeyBytes)}; }
  __device__ TileInShared<Tiles::kStreamed> values(int stage) const { return keys(Tiles::kStages + stage); }
  __device__ RingBarriers<Tiles::kStages> of_keys() const { return {at(kTilesBytes)}; }
  __device__ RingBarriers<Tiles::kStages> of_values() const {
    return {at(kTilesBytes + RingBarriers<Tiles::kStages>::kBytes)};
  }
  __device__ std::uint32_t queries_full() const { return at(kBytes - 8); }
};

// Lets the consumers issue products alternately, with one named barrier each, at which its owner waits and the other
// arrives. The second consumer gives the first its first turn; both take equally many turns, so the first does not pass
// its last one on.
template <class Lane>
struct Turns {
  static constexpr int kFirstBarrier = 1;
  static constexpr int kThreads = 32 * kGroupWarps * kConsumers;
  int consumer;

  __device__ void begin(Lane& lane) const {
    if (consumer == 1) lane.arrive_at_meeting(kFirstBarrier, kThreads);
  }
  __device__ void take(Lane& lane) const { lane.meet(kFirstBarrier + consumer, kThreads); }
  __device__ void pass(Lane& lane, bool last) const {
    if (consumer == 0 || !last) lane.arrive_at_meeting(kFirstBarrier + 1 - consumer, kThreads);
  }
};

template <class Tiles, class Lane, class Operands>
__device__ void load_forward(Lane& lane, const HopperForwardShared<Tiles>& shared, const Operands& operands,
                             const BlockWork& work, int key_tiles) {
  const AttentionGeometry& g = operands.geometry;
  const int key_head = work.head / g.group();
  const auto load_rows = [&](const typename Lane::Map& map, TileInShared<Tiles::kStreamed> to,
                             const RingBarriers<Tiles::kStages>& barriers, const Ring<Tiles::kStages>& at, int tile) {
    barriers.wait_empty(lane, at);
    load_tile<Tiles::kStreamed, Tiles::kColumns>(lane, to.address, map, barriers.full(at), key_head,
                                                 tile * Tiles::kStreamed, work.batch);
  };
  load_tile<Tiles::kBlockRows, Tiles::kColumns>(lane, shared.queries().address, operands.q, shared.queries_full(),
                                                work.head, work.tile * Tiles::kBlockRows, work.batch);
  Ring<Tiles::kStages> at;
  for (int tile = 0; tile < key_tiles; ++tile, at.next()) {
    load_rows(operands.k, shared.keys(at.stage), shared.of_keys(), at, tile);
    load_rows(operands.v, shared.values(at.stage), shared.of_values(), at, tile);
  }
}

template <class Tiles, class Lane>
__device__ void multiply_scores(Lane& lane, typename Tiles::Sums& scores, TileInShared<Tiles::kBlockRows> queries,
                                int first_row, TileInShared<Tiles::kStreamed> keys) {
  using T = typename Tiles::Value;
  lane.begin_products();
#pragma unroll
  for (int column = 0; column < Tiles::kColumns; column += 16) {
    lane.template multiply<T, false, false>(scores[0], queries.along_rows(first_row, column),
                                            keys.along_rows(0, column), column > 0);
  }
  lane.commit_products();
}

template <class Tiles, class Lane>
__device__ void multiply_values(Lane& lane, typename Tiles::Result& result,
                                const std::uint32_t (&weights)[Tiles::kFactors][4],
                                TileInShared<Tiles::kStreamed> values) {
  using T = typename Tiles::Value;
  lane.begin_products();
#pragma unroll
  for (int k = 0; k < Tiles::kFactors; ++k) {
    lane.template multiply<T, true>(result[0], weights[k], values.across_rows(16 * k, 0), 1);
  }
  lane.commit_products();
}

template <class Tiles, class Lane, class Operands>
__device__ void compute_forward(Lane& lane, const HopperForwardShared<Tiles>& shared, const Operands& operands,
                                const BlockWork& work, int key_tiles) {
  const AttentionGeometry& g = operands.geometry;
  const Turns<Lane> turns{lane.group() - 1};
  const int group_row = turns.consumer * Tiles::kRows;
  const int first_row = work.tile * Tiles::kBlockRows + group_row + lane.warp() % kGroupWarps * Tiles::kWarpRows;
  const float factor = g.scale * kLog2E;
  const auto of_keys = shared.of_keys();
  const auto of_values = shared.of_values();
  RunningSoftmax<Tiles> softmax;
  typename Tiles::Result result = {};
  typename Tiles::Sums scores;
  std::uint32_t weights[Tiles::kFactors][4];
  float fade[1][2];

  Ring<Tiles::kStages> next;  // ring of keys; values lag by one tile
  Ring<Tiles::kStages> at;
  turns.begin(lane);
  lane.wait(shared.queries_full(), 0);
  of_keys.wait_full(lane, next);
  turns.take(lane);
  multiply_scores<Tiles>(lane, scores, shared.queries(), group_row, shared.keys(next.stage));
  turns.pass(lane, key_tiles == 1);
  lane.template wait_for_products<0>();
  lane.settle(scores[0]);
  of_keys.release(lane, next);
  mask_keys<Tiles>(lane, scores, first_row, 0, g, -INFINITY);
  softmax.weigh(lane, scores, factor, fade);
  round_factors<typename Tiles::Value>(lane, scores[0], weights);

#pragma unroll 1
  for (int tile = 1; tile < key_tiles; ++tile) {
    next.next();
    of_keys.wait_full(lane, next);
    turns.take(lane);
    multiply_scores<Tiles>(lane, scores, shared.queries(), group_row, shared.keys(next.stage));
    of_values.wait_full(lane, at);
    multiply_values<Tiles>(lane, result, weights, shared.values(at.stage));
    turns.pass(lane, tile + 1 == key_tiles);
    lane.template wait_for_products<1>();
    lane.settle(scores[0]);
    of_keys.release(lane, next);
    mask_keys<Tiles>(lane, scores, first_row, tile * Tiles::kStreamed, g, -INFINITY);
    softmax.weigh(lane, scores, factor, fade);
    lane.template wait_for_products<0>();
    lane.settle(result[0]);
    of_values.release(lane, at);
    fade_rows<Tiles>(result, fade);
    round_factors<typename Tiles::Value>(lane, scores[0], weights);
    at.next();
  }

  of_values.wait_full(lane, at);
  multiply_values<Tiles>(lane, result, weights, shared.values(at.stage));
  lane.template wait_for_products<0>();
  lane.settle(result[0]);
  store_forward(lane, softmax, result, operands, work, first_row);
}

template <class Tiles, class Lane, class Operands>
__device__ void hopper_forward_block(Lane& lane, const Operands& operands, std::int64_t block) {
  const AttentionGeometry& g = operands.geometry;
  const HopperForwardShared<Tiles> shared{lane.window()};
  if (lane.thread() == 0) {
    lane.begin_barrier(shared.queries_full(), 1);
    shared.of_keys().begin(lane, 1);
    shared.of_values().begin(lane, 1);
    lane.publish_barriers();
  }
  lane.sync();
  const int tiles = tiles_of(g.queries, Tiles::kBlockRows);
  BlockWork work = work_of_block(block, g.heads, tiles, 1);
  work.tile = tiles - 1 - work.tile;  // the last queries see the most keys: they start first
  const int past_query =
      (work.tile + 1) * Tiles::kBlockRows < g.queries ? (work.tile + 1) * Tiles::kBlockRows : g.queries;
  const int key_tiles = tiles_of(g.last_key(past_query - 1) + 1, Tiles::kStreamed);
  if (lane.group() == 0) {
    lane.template give_registers<kProducerRegisters>();
    if (lane.thread() == 0) load_forward(lane, shared, operands, work, key_tiles);
  } else {
    lane.template take_registers<kConsumerRegisters>();
    compute_forward(lane, shared, operands, work, key_tiles);
  }
}

}  // namespace lockstep::kernels
