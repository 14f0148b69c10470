// Backward of one block on compute capability 9.0a, in one pass: a block has 128 keys of a head, a consumer 64, and
// processes all queries that see them, 64 at a time, with five products per pair of tiles; attention_backward.cuh,
// which computes the scores twice, has seven. Rows of the sums are keys, columns are queries:
//   s = k q^T, dp = v d_o^T; p = exp2(s - lse); dv += p d_o; ds = p (dp - delta); dk += ds q
// The gradients of the scores of both consumers go through shared memory, where the keys are the depth of dq += ds^T k.
// A consumer multiplies 64 columns of dq (half of each tile of 128 columns, or every other tile of 64) and adds them to
// dq in f32 in memory.
//
// Runs repeat bit for bit: blocks add to a tile of dq in a fixed order, beginning with the last keys that it sees. Each
// panel of a tile has a counter of the blocks that have added; a block waits for its turn, adds (by red, without
// reading), and passes the turn on while its next products run. The blocks of a head begin with the last keys, so that
// the blocks for which a block waits have begun before it (block numbers are drawn from a counter). If attention is
// causal, blocks begin with the queries next to their keys: blocks that start together then reach a tile one after
// another. If it is not, all blocks of a head begin with the same tile: those that start together belong to as many
// heads as there are.
#pragma once

#include "kernels/attention/attention_backward.cuh"
#include "kernels/attention/attention_hopper_forward.cuh"

namespace lockstep::kernels {

inline constexpr int kNumberBytes = static_cast<int>(sizeof(QueryNumbers));

// kRows: number of keys per consumer.
template <class T, int kColumnsOf>
struct HopperBackwardTiles : TileSizes<kColumnsOf, 1, 64, 2> {
  using Sizes = TileSizes<kColumnsOf, 1, 64, 2>;
  using Value = T;
  static constexpr int kBlockRows = kConsumers * Sizes::kRows;
  static constexpr int kFactors = Sizes::kBlocks / 2;
  static constexpr int kPanels = kColumnsOf / kPanelColumns;
  using Panel = float[kPanelColumns / 8][4];  // a panel of dq
};

// Memory of a call besides its operands.
struct HopperBackwardMemory {
  QueryNumbers* numbers;    // [batch, heads, queries]
  float* dq_sums;           // [batch, heads, tiles of queries, 64, columns]
  std::uint32_t* counters;  // zero on entry: blocks that have begun; [tiles][panels] blocks that have added to dq
};

template <class T, class Map>
struct HopperBackwardOperands {
  AttentionGeometry geometry;
  Map q;
  Map k;
  Map v;
  Map d_o;
  T* dk;
  T* dv;
  HopperBackwardMemory memory;
  std::int64_t key_heads;  // number of heads of keys of all sequences
};

// map_of(tensor) returns a Map.
template <class Tiles, class Map, class MapOf>
HopperBackwardOperands<typename Tiles::Value, Map> hopper_operands(const AttentionBackward& args,
                                                                   const HopperBackwardMemory& memory, MapOf map_of) {
  using T = typename Tiles::Value;
  const AttentionShape& s = args.shape;
  return {operands_for<T>(args, memory.numbers).geometry,
          map_of(queries_tensor(s, args.q.data, Tiles::kStreamed)),
          map_of(keys_tensor(s, args.k.data, Tiles::kBlockRows)),
          map_of(keys_tensor(s, args.v.data, Tiles::kBlockRows)),
          map_of(packed_tensor(s, args.d_o.data, Tiles::kStreamed)),
          args.dk.as<T>(),
          args.dv.as<T>(),
          memory,
          s.batch * s.key_heads()};
}

// Sizes of the parts of this memory, in order.
struct HopperBackwardSizes {
  std::int64_t numbers;
  std::int64_t dq_sums;
  std::int64_t counters;
};
template <class Tiles>
HopperBackwardSizes backward_sizes(const AttentionShape& s) {
  const std::int64_t tiles = query_blocks_of(s, Tiles::kStreamed);
  return {s.batch * s.heads * s.queries, tiles * Tiles::kStreamed * Tiles::kColumns, 1 + tiles * Tiles::kPanels};
}

// Shared memory: tiles and numbers, then the block's number and barriers.
template <class Tiles>
struct HopperBackwardShared {
  static constexpr int kKeyBytes = kTileBytes<Tiles::kBlockRows, Tiles::kColumns>;
  static constexpr int kQueryBytes = kTileBytes<Tiles::kStreamed, Tiles::kColumns>;
  static constexpr int kSlopeBytes = kTileBytes<Tiles::kBlockRows, Tiles::kStreamed>;
  static constexpr int kNumbersBytes = Tiles::kStreamed * kNumberBytes;
  static constexpr int kQueries = 2 * kKeyBytes;
  static constexpr int kSlopes = kQueries + 2 * Tiles::kStages * kQueryBytes;
  static constexpr int kNumbers = kSlopes + 2 * kSlopeBytes;
  static constexpr int kTicket = kNumbers + Tiles::kStages * kNumbersBytes;
  static constexpr int kBarriers = kTicket + 16;
  static constexpr int kBytes = kBarriers + RingBarriers<Tiles::kStages>::kBytes + 8;

  std::uint32_t address;

  __device__ std::uint32_t at(int offset) const { return address + static_cast<std::uint32_t>(offset); }
  __device__ TileInShared<Tiles::kBlockRows> keys() const { return {address}; }
  __device__ TileInShared<Tiles::kBlockRows> values() const { return {at(kKeyBytes)}; }
  __device__ TileInShared<Tiles::kStreamed> queries(int stage) const { return {at(kQueries + stage * kQueryBytes)}; }
  __device__ TileInShared<Tiles::kStreamed> d_os(int stage) const { return queries(Tiles::kStages + stage); }
  // Gradients of scores, [keys][queries]; two tiles of queries alternate.
  __device__ TileInShared<Tiles::kBlockRows> slopes(int tile) const { return {at(kSlopes + tile % 2 * kSlopeBytes)}; }
  __device__ std::uint32_t numbers(int stage, int query) const {
    return at(kNumbers + stage * kNumbersBytes + query * kNumberBytes);
  }
  __device__ std::uint32_t ticket() const { return at(kTicket); }
  __device__ RingBarriers<Tiles::kStages> of_queries() const { return {at(kBarriers)}; }
  __device__ std::uint32_t keys_full() const { return at(kBytes - 8); }
};

// The tiles of queries that a block processes, for one head after another of those that share its keys.
struct QueryTiles {
  BlockWork keys;  // its head is the keys'
  int first;       // first tile of each head
  int past;
  int group;  // number of heads
  int head = 0;
  int tile = first;

  __device__ bool at_end() const { return head == group; }
  __device__ void next() {
    if (++tile < past) return;
    tile = first;
    ++head;
  }
  __device__ BlockWork work() const { return {keys.batch, keys.head * group + head, tile, 0}; }
};

// The keys of the block that begins as number `ticket`. Of two blocks of a head, the one of later keys begins first.
template <class Tiles>
__device__ BlockWork keys_of_ticket(std::int64_t ticket, const AttentionGeometry& g, std::int64_t key_heads) {
  const int tiles = tiles_of(g.keys, Tiles::kBlockRows);
  const std::int64_t sequence = g.causal ? ticket / tiles : ticket % key_heads;
  const std::int64_t before = g.causal ? ticket % tiles : ticket / key_heads;
  return {sequence / g.kv_heads, static_cast<int>(sequence % g.kv_heads), tiles - 1 - static_cast<int>(before), 0};
}

template <class Tiles>
__device__ QueryTiles query_tiles_of(const BlockWork& keys, const AttentionGeometry& g) {
  return {keys, g.first_query(keys.tile * Tiles::kBlockRows) / Tiles::kStreamed, tiles_of(g.queries, Tiles::kStreamed),
          g.group()};
}

// Returns how many blocks add to a tile of dq before the block of these keys: the blocks of later keys that the tile
// sees.
template <class Tiles>
__device__ std::uint32_t adders_before(const QueryTiles& queries, const AttentionGeometry& g) {
  const int past = (queries.tile + 1) * Tiles::kStreamed;
  const int last_tile = g.last_key((past < g.queries ? past : g.queries) - 1) / Tiles::kBlockRows;
  return static_cast<std::uint32_t>(last_tile - queries.keys.tile);
}

// Runs on the producer's first warp. A tile of queries is full when its boxes and the numbers of all lanes have
// arrived.
template <class Tiles, class Lane, class Operands>
__device__ void load_backward(Lane& lane, const HopperBackwardShared<Tiles>& shared, const Operands& operands,
                              QueryTiles queries) {
  const AttentionGeometry& g = operands.geometry;
  const BlockWork& keys = queries.keys;
  if (lane.lane() == 0) {
    const int row = keys.tile * Tiles::kBlockRows;
    load_tile<Tiles::kBlockRows, Tiles::kColumns>(lane, shared.keys().address, operands.k, shared.keys_full(),
                                                  keys.head, row, keys.batch);
    load_tile<Tiles::kBlockRows, Tiles::kColumns>(lane, shared.values().address, operands.v, shared.keys_full(),
                                                  keys.head, row, keys.batch);
  }
  const auto barriers = shared.of_queries();
  Ring<Tiles::kStages> at;
#pragma unroll 1
  for (; !queries.at_end(); queries.next(), at.next()) {
    const BlockWork work = queries.work();
    const int first = work.tile * Tiles::kStreamed;
    barriers.wait_empty(lane, at);
    if (lane.lane() == 0) {
      load_tile<Tiles::kStreamed, Tiles::kColumns>(lane, shared.queries(at.stage).address, operands.q,
                                                   barriers.full(at), work.head, first, work.batch);
      load_tile<Tiles::kStreamed, Tiles::kColumns>(lane, shared.d_os(at.stage).address, operands.d_o, barriers.full(at),
                                                   work.head, first, work.batch);
    }
    const QueryNumbers* const numbers = row_numbers(operands.memory.numbers, g, work);
    for (int i = lane.lane(); i < Tiles::kStreamed; i += 32) {
      const bool there = first + i < g.queries;
      const QueryNumbers query = there ? numbers[first + i] : QueryNumbers{0, 0};
      lane.store_shared(shared.numbers(at.stage, i), query.lse, query.delta);
    }
    lane.arrive(barriers.full(at));
  }
}
inline constexpr int kFillsOfQueries = 2 + 32;  // arrivals

template <class Tiles, class Lane, int kARows, int kBRows>
__device__ void multiply_rows(Lane& lane, typename Tiles::Sums& sums, TileInShared<kARows> a, int row,
                              TileInShared<kBRows> b) {
  using T = typename Tiles::Value;
  lane.begin_products();
#pragma unroll
  for (int column = 0; column < Tiles::kColumns; column += 16) {
    lane.template multiply<T, false, false>(sums[0], a.along_rows(row, column), b.along_rows(0, column), column > 0);
  }
  lane.commit_products();
}

template <class Tiles, class Lane>
__device__ void add_products(Lane& lane, typename Tiles::Result& result,
                             const std::uint32_t (&factors)[Tiles::kFactors][4], TileInShared<Tiles::kStreamed> b) {
  using T = typename Tiles::Value;
  lane.begin_products();
#pragma unroll
  for (int k = 0; k < Tiles::kFactors; ++k) {
    lane.template multiply<T, true>(result[0], factors[k], b.across_rows(16 * k, 0), 1);
  }
  lane.commit_products();
}

// A panel of dq; the block's keys are the depth of the product.
template <class Tiles, class Lane>
__device__ void multiply_slopes(Lane& lane, typename Tiles::Panel& dq, TileInShared<Tiles::kBlockRows> slopes,
                                TileInShared<Tiles::kBlockRows> keys, int panel) {
  using T = typename Tiles::Value;
  lane.begin_products();
#pragma unroll
  for (int key = 0; key < Tiles::kBlockRows; key += 16) {
    lane.template multiply<T, true, true>(dq, slopes.across_rows(key, 0), keys.across_rows(key, panel * kPanelColumns),
                                          key > 0);
  }
  lane.commit_products();
}

// Calls each(n, e, lse, delta) for a lane's sums, with the numbers of their queries, which begin at an address.
template <class Tiles, class Lane, class Each>
__device__ void with_numbers(Lane& lane, std::uint32_t numbers, Each each) {
#pragma unroll
  for (int n = 0; n < Tiles::kBlocks; ++n) {
    const auto two = lane.load_four(numbers + static_cast<std::uint32_t>(8 * n * kNumberBytes));
#pragma unroll
    for (int e = 0; e < 4; ++e) each(n, e, two.at[e % 2 * 2], two.at[e % 2 * 2 + 1]);
  }
}

// Stores factors (words of two adjacent elements of a row) to rows of shared memory, in the layout that a copy would
// have produced.
template <class Tiles, class Lane>
__device__ void store_slopes(Lane& lane, const std::uint32_t (&slopes)[Tiles::kFactors][4], std::uint32_t tile,
                             int warp_row) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp_row + sum_row(lane.lane(), 2 * half);
    const std::uint32_t at = tile + static_cast<std::uint32_t>(row * kPanelRowBytes + lane.lane() % 4 * 4);
#pragma unroll
    for (int block = 0; block < Tiles::kBlocks; ++block) {
      const int piece = block ^ row % 8;
      lane.store_shared(at + static_cast<std::uint32_t>(16 * piece), slopes[block / 2][2 * (block % 2) + half]);
    }
  }
}

// Adds a panel of dq of a tile of queries to its sums in memory.
template <class Tiles, class Lane>
__device__ void add_to_dq(Lane& lane, const typename Tiles::Panel& sums, float* panel, bool is_first) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = lane.warp() % kGroupWarps * Tiles::kWarpRows + sum_row(lane.lane(), 2 * half);
    float* const at = panel + row * Tiles::kColumns + sum_column(lane.lane(), 0, 0);
#pragma unroll
    for (int n = 0; n < kPanelColumns / 8; ++n) {
      if (is_first) lane.store_two(at + std::int64_t{8} * n, sums[n][2 * half], sums[n][2 * half + 1]);
      if (!is_first) lane.add_two(at + std::int64_t{8} * n, sums[n][2 * half], sums[n][2 * half + 1]);
    }
  }
}

template <class Tiles, class Lane, class Operands>
__device__ void compute_backward(Lane& lane, const HopperBackwardShared<Tiles>& shared, const Operands& operands,
                                 QueryTiles queries) {
  using T = typename Tiles::Value;
  constexpr int kSlopes = 1;  // ids of named barriers: of each consumer, for even and for odd tiles
  constexpr int kOneConsumer = 5;
  constexpr int kGroupThreads = 32 * kGroupWarps;
  const AttentionGeometry& g = operands.geometry;
  const int consumer = lane.group() - 1;
  const int group_row = consumer * Tiles::kRows;
  const int warp_row = group_row + lane.warp() % kGroupWarps * Tiles::kWarpRows;
  const int first_key = queries.keys.tile * Tiles::kBlockRows + warp_row;
  const float factor = g.scale * kLog2E;
  const auto barriers = shared.of_queries();
  typename Tiles::Result dk = {};
  typename Tiles::Result dv = {};
  std::uint32_t* owed = nullptr;  // counter of the panel of dq for which this consumer still has to pass the turn on
  const auto pass_turn = [&] {
    if (owed == nullptr) return;
    lane.meet(kOneConsumer + consumer, kGroupThreads);  // all threads have added
    if (lane.thread() % kGroupThreads == 0) lane.pass_turn(owed);
    owed = nullptr;
  };

  lane.wait(shared.keys_full(), 0);
  Ring<Tiles::kStages> at;
#pragma unroll 1
  for (int turn = 0; !queries.at_end(); ++turn, queries.next(), at.next()) {
    const int first_query = queries.tile * Tiles::kStreamed;
    const std::uint32_t numbers = shared.numbers(at.stage, sum_column(lane.lane(), 0, 0));
    barriers.wait_full(lane, at);
    typename Tiles::Sums p;
    typename Tiles::Sums dp;
    multiply_rows<Tiles>(lane, p, shared.keys(), group_row, shared.queries(at.stage));
    multiply_rows<Tiles>(lane, dp, shared.values(), group_row, shared.d_os(at.stage));
    pass_turn();

    lane.template wait_for_products<1>();
    lane.settle(p[0]);
    with_numbers<Tiles>(lane, numbers,
                        [&](int n, int e, float lse, float) { p[0][n][e] = Lane::exp2(factor * p[0][n][e] - lse); });
    mask_queries<Tiles>(lane, p, first_key, first_query, g);
    std::uint32_t weights[Tiles::kFactors][4];
    round_factors<T>(lane, p[0], weights);
    add_products<Tiles>(lane, dv, weights, shared.d_os(at.stage));

    lane.template wait_for_products<1>();
    lane.settle(dp[0]);
    with_numbers<Tiles>(lane, numbers, [&](int n, int e, float, float delta) { p[0][n][e] *= dp[0][n][e] - delta; });
    std::uint32_t slopes[Tiles::kFactors][4];
    round_factors<T>(lane, p[0], slopes);
    store_slopes<Tiles>(lane, slopes, shared.slopes(turn).address, warp_row);
    lane.publish_stores();
    // The one that multiplies waits for the other's slopes: each for its panel or, if there is one panel, for every
    // other tile. A consumer that arrives has finished with the slopes of the tile before, which the one that waits may
    // therefore replace with those of the next tile, and has passed its own wait for that tile before.
    const int multiplier = Tiles::kPanels == 1 ? turn % kConsumers : consumer;
    const int stored = kSlopes + turn % 2 * kConsumers;
    const bool is_waited_for = Tiles::kPanels == 2 || multiplier != consumer;
    if (is_waited_for) lane.arrive_at_meeting(stored + 1 - consumer, kConsumers * kGroupThreads);
    add_products<Tiles>(lane, dk, slopes, shared.queries(at.stage));
    if (multiplier != consumer) {
      lane.template wait_for_products<0>();
      lane.settle(dk[0]);
      lane.settle(dv[0]);
      barriers.release(lane, at);
      continue;
    }
    lane.meet(stored + consumer, kConsumers * kGroupThreads);
    const int panel = Tiles::kPanels == 1 ? 0 : consumer;
    typename Tiles::Panel dq;
    multiply_slopes<Tiles>(lane, dq, shared.slopes(turn), shared.keys(), panel);
    const BlockWork work = queries.work();
    const std::int64_t tile = (work.batch * g.heads + work.head) * queries.past + work.tile;
    const std::uint32_t before = adders_before<Tiles>(queries, g);
    owed = operands.memory.counters + 1 + tile * Tiles::kPanels + panel;
    if (lane.thread() % kGroupThreads == 0) lane.wait_for_turn(owed, before);
    lane.meet(kOneConsumer + consumer, kGroupThreads);
    lane.template wait_for_products<0>();
    lane.settle(dk[0]);
    lane.settle(dv[0]);
    lane.settle(dq);
    barriers.release(lane, at);
    float* const sums = operands.memory.dq_sums + tile * Tiles::kStreamed * Tiles::kColumns + panel * kPanelColumns;
    add_to_dq<Tiles>(lane, dq, sums, before == 0);
  }
  pass_turn();

  const BlockWork& keys = queries.keys;
  store_rows<Tiles>(lane, dk, key_rows(operands.dk, g, keys.batch, keys.head), first_key, 0, g,
                    [&](int /*m*/, int /*half*/) { return g.scale; });
  store_rows<Tiles>(lane, dv, key_rows(operands.dv, g, keys.batch, keys.head), first_key, 0, g,
                    [](int /*m*/, int /*half*/) { return 1.0F; });
}

template <class Tiles, class Lane, class Operands>
__device__ void hopper_backward_block(Lane& lane, const Operands& operands) {
  const AttentionGeometry& g = operands.geometry;
  const HopperBackwardShared<Tiles> shared{lane.window()};
  if (lane.thread() == 0) {
    lane.begin_barrier(shared.keys_full(), 2);
    shared.of_queries().begin(lane, kFillsOfQueries);
    lane.publish_barriers();
    lane.store_shared(shared.ticket(), lane.take_ticket(operands.memory.counters));
  }
  lane.sync();
  const BlockWork keys = keys_of_ticket<Tiles>(lane.load_shared(shared.ticket()), g, operands.key_heads);
  const QueryTiles queries = query_tiles_of<Tiles>(keys, g);
  if (lane.group() == 0) {
    lane.template give_registers<kProducerRegisters>();
    if (lane.warp() == 0) load_backward(lane, shared, operands, queries);
  } else {
    lane.template take_registers<kConsumerRegisters>();
    compute_backward(lane, shared, operands, queries);
  }
}

// Converts the sums to dq: two columns of a row per thread, [batch, heads, tiles, 64, columns / 2].
template <class Tiles, class Lane, class T>
__device__ void dq_from_sums(const AttentionGeometry& g, const float* sums, T* dq, std::int64_t pair) {
  constexpr int kPairs = Tiles::kColumns / 2;
  const std::int64_t rows = std::int64_t{tiles_of(g.queries, Tiles::kStreamed)} * Tiles::kStreamed;  // rows of a head
  const std::int64_t row = pair / kPairs;
  const int query = static_cast<int>(row % rows);
  if (query >= g.queries) return;
  const std::int64_t sequence = row / rows;
  const BlockWork work{sequence / g.heads, static_cast<int>(sequence % g.heads), 0, 0};
  T* const to = query_rows(dq, g, work).row(query) + pair % kPairs * 2;
  Lane::store_pair(to, g.scale * sums[2 * pair], g.scale * sums[2 * pair + 1]);
}

}  // namespace lockstep::kernels
