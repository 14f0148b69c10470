// Products of several experts' layers by one kernel, on compute capability 9.0a. Blocks are persistent: block b
// computes tiles b, b + blocks, ... of all groups (experts_tiles.cuh). One warpgroup loads tiles by the copy engine
// (TMA), two multiply them (wgmma), with a ring of buffers between them, as in base/tensor_core_tiles.cuh.
//
// A tile of rows may hold rows of the next group: where rows are rows of c, the results are not stored; where rows are
// the depth, they are overwritten with zeros in shared memory. The kernel is a template over its lane: HopperLane on a
// device, EmulatedHopperLane on the CPU.
#pragma once

#include "kernels/activation/gelu_math.cuh"
#include "kernels/moe/experts_tiles.cuh"

namespace lockstep::kernels {

// A part of a factor in shared memory: kExtent rows or columns of c, kStageDepth of the depth.
template <bool kAcross, int kExtent>
struct FactorTile {
  static constexpr int kRows = kAcross ? kStageDepth : kExtent;
  static constexpr int kColumns = kAcross ? kExtent : kStageDepth;
  std::uint32_t address;

  template <class Lane>
  __device__ void load(Lane& lane, const typename Lane::Map& map, std::uint32_t barrier, int extent, int depth) const {
    load_panels<kRows, kColumns>(lane, address, map, barrier, kAcross ? extent : depth, 0, kAcross ? depth : extent, 0);
  }
  __device__ std::uint64_t at(int extent, int depth) const {
    const TileInShared<kRows> tile{address};
    return kAcross ? tile.across_rows(depth, extent) : tile.along_rows(extent, depth);
  }
};

// Shared memory: the ring's tiles and barriers, then the first tile and the first row of each group.
template <class Tiles>
struct GroupedShared {
  static constexpr int kBarriers = Tiles::kStages * Tiles::kStageBytes;
  static constexpr int kFirstTiles = kBarriers + RingBarriers<Tiles::kStages>::kBytes;
  static constexpr int kFirstRows = kFirstTiles + 4 * (kMostGroups + 1);
  static constexpr int kBytes = kFirstRows + 4 * (kMostGroups + 1);

  std::uint32_t address;

  __device__ std::uint32_t at(int offset) const { return address + static_cast<std::uint32_t>(offset); }
  __device__ FactorTile<Tiles::kAcrossA, Tiles::kRows> a(int stage) const { return {at(stage * Tiles::kStageBytes)}; }
  __device__ FactorTile<Tiles::kAcrossB, Tiles::kColumns> b(int stage) const {
    return {at(stage * Tiles::kStageBytes + Tiles::kBytesA)};
  }
  __device__ RingBarriers<Tiles::kStages> ring() const { return {at(kBarriers)}; }
  __device__ std::uint32_t first_tile(int group) const { return at(kFirstTiles + 4 * group); }
  __device__ std::uint32_t first_row(int group) const { return at(kFirstRows + 4 * group); }
};

// Runs on all threads; ends with a barrier of the block.
template <class Tiles, class Lane>
__device__ void find_first_tiles(Lane& lane, const GroupedShared<Tiles>& shared, const GroupedSizes& sizes,
                                 const std::int32_t* first_rows) {
  const int group = lane.thread();
  if (group <= sizes.groups) {
    lane.store_shared(shared.first_row(group), static_cast<std::uint32_t>(first_rows[group]));
  }
  lane.sync();
  if (group <= sizes.groups) {
    int tiles = 0;
    for (int before = 0; before < group; ++before) {
      const std::uint32_t rows =
          lane.load_shared(shared.first_row(before + 1)) - lane.load_shared(shared.first_row(before));
      tiles += tiles_of_group<Tiles>(sizes, static_cast<int>(rows));
    }
    lane.store_shared(shared.first_tile(group), static_cast<std::uint32_t>(tiles));
  }
  lane.sync();
}

// Calls visit(range) for each tile of a block.
template <class Tiles, class Lane, class Visit>
__device__ void for_tiles(Lane& lane, const GroupedShared<Tiles>& shared, const GroupedSizes& sizes, int block,
                          int blocks, const Visit& visit) {
  const auto first_tile = [&](int group) { return static_cast<int>(lane.load_shared(shared.first_tile(group))); };
  const auto first_row = [&](int group) { return static_cast<int>(lane.load_shared(shared.first_row(group))); };
  const int tiles = first_tile(sizes.groups);
#pragma unroll 1
  for (int tile = block; tile < tiles; tile += blocks) {
    visit(range_of_tile<Tiles>(tile, sizes, first_tile, first_row));
  }
}

// ---- the results

// On entry, word j of each of the four lanes that share a row is its part of block j, 8 columns; on return, lane q of
// them has the four parts of block q, in order.
template <class Lane>
__device__ void transpose_words(Lane& lane, std::uint32_t (&words)[4]) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = (lane.lane() & bit) != 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if ((j & bit) != 0) continue;
      const std::uint32_t received = lane.from_partner(upper ? words[j] : words[j | bit], bit);
      if (upper) {
        words[j] = received;
      } else {
        words[j | bit] = received;
      }
    }
  }
}

// Finishes two adjacent sums; `other` has the elements of the bias or of the pre-activation that is read, and `before`
// gets the tiles of the pre-activation that is written.
template <class T, class Lane>
__device__ std::uint32_t finish_pair(Lane& /*lane*/, Finish finish, float first, float second, std::uint32_t other,
                                     std::uint32_t& before) {
  const auto of = Lane::template unpack<T>(other);
  if (finish == Finish::bias || finish == Finish::bias_gelu) {
    first += of.at[0];
    second += of.at[1];
  }
  if (finish == Finish::bias_gelu) {
    before = Lane::template pack<T>(first, second);
    first = gelu_math::gelu_for<T>(first);
    second = gelu_math::gelu_for<T>(second);
  }
  if (finish == Finish::times_gelu_slope) {
    first *= gelu_math::gelu_slope_for<T>(of.at[0]);
    second *= gelu_math::gelu_slope_for<T>(of.at[1]);
  }
  return Lane::template pack<T>(first, second);
}

// Stores rows of 16-bit elements, 16 bytes per lane: c has a multiple of 8 columns. `half` selects rows 0 to 7 or 8 to
// 15 of the warp's 16.
template <class Tiles, class Lane, class Operands>
__device__ void store_finished(Lane& lane, const float (&sums)[Tiles::kBlocks][4], const Operands& operands,
                               const TileRange& range, int row, int half) {
  using T = typename Tiles::Value;
  const Finish finish = operands.finish;
  const int first = 2 * half;  // among the sums of a block
  const int columns = operands.sizes.columns;
  const bool there = row < range.past_row;
  const std::int64_t offset = std::int64_t{row} * columns;
  const T* const other = finish == Finish::times_gelu_slope ? static_cast<const T*>(operands.pre_read) + offset
                                                            : static_cast<const T*>(operands.bias[range.group]);
  // All are read before the first is needed, so that their latencies overlap.
  std::uint32_t others[Tiles::kBlocks];
#pragma unroll
  for (int b = 0; b < Tiles::kBlocks; ++b) {
    const int column = range.column + sum_column(lane.lane(), b, 0);
    others[b] = finish != Finish::store && there && column < columns ? Lane::load_word(other + column) : 0;
  }
  const auto store = [&](void* to, std::uint32_t(&words)[4], int block) {
    transpose_words(lane, words);
    const int column = range.column + 8 * (block + lane.lane() % 4);
    if (there && column < columns) Lane::store_words(static_cast<T*>(to) + offset + column, words);
  };
#pragma unroll
  for (int block = 0; block < Tiles::kBlocks; block += 4) {
    std::uint32_t words[4];
    std::uint32_t before[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float(&two)[4] = sums[block + j];
      words[j] = finish_pair<T>(lane, finish, two[first], two[first + 1], others[block + j], before[j]);
    }
    store(operands.c[0], words, block);
    if (finish == Finish::bias_gelu) store(operands.pre_written, before, block);
  }
}

// Adds rows of sums to the group's gradient. Nobody else adds to this tile, so that runs repeat bit for bit. The
// second-level cache adds, so that nobody waits for the old values; it flushes subnormal numbers to 0 (PTX ISA, red).
template <class Tiles, class Lane, class Operands>
__device__ void add_to_gradient(Lane& lane, const float (&sums)[Tiles::kBlocks][4], const Operands& operands,
                                const TileRange& range, int row, int half) {
  const int columns = operands.sizes.columns;
  if (row >= range.past_row) return;
  float* const to = static_cast<float*>(operands.c[range.group]) + std::int64_t{row} * columns;
#pragma unroll
  for (int b = 0; b < Tiles::kBlocks; ++b) {
    const int column = range.column + sum_column(lane.lane(), b, 0);
    if (column < columns) lane.add_two(to + column, sums[b][2 * half], sums[b][2 * half + 1]);
  }
}

template <class Tiles, class Lane, class Operands>
__device__ void store_tile(Lane& lane, const float (&sums)[Tiles::kBlocks][4], const Operands& operands,
                           const TileRange& range, int group_row) {
  const int first_row = range.row + group_row + lane.warp() % kGroupWarps * 16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first_row + sum_row(lane.lane(), 2 * half);
    if constexpr (Tiles::kRowsAreDepth) {
      add_to_gradient<Tiles>(lane, sums, operands, range, row, half);
    } else {
      store_finished<Tiles>(lane, sums, operands, range, row, half);
    }
  }
}

// ---- producer and consumers

template <class Tiles, class Lane, class Operands>
__device__ void load_groups(Lane& lane, const GroupedShared<Tiles>& shared, const Operands& operands, int block,
                            int blocks) {
  const auto ring = shared.ring();
  Ring<Tiles::kStages> at;
  for_tiles(lane, shared, operands.sizes, block, blocks, [&](const TileRange& range) {
    const typename Lane::Map& map_b = operands.b[Tiles::kRowsAreDepth ? 0 : range.group];
#pragma unroll 1
    for (int depth = range.depth; depth < range.past_depth; depth += kStageDepth, at.next()) {
      ring.wait_empty(lane, at);
      lane.arrive_expecting(ring.full(at), Tiles::kStageBytes);
      shared.a(at.stage).load(lane, operands.a, ring.full(at), range.row, depth);
      shared.b(at.stage).load(lane, map_b, ring.full(at), range.column, depth);
    }
  });
}

// Overwrites rows `first` to 63 of all panels of a stage with zeros: they are the next group's, and may even be NaN.
// All consumers meet, because each reads what others have overwritten.
template <class Tiles, class Lane>
__device__ void clear_rows(Lane& lane, const GroupedShared<Tiles>& shared, int stage, int first) {
  constexpr int kAllConsumers = 1;  // named barrier
  constexpr int kThreads = 32 * kGroupWarps * kConsumers;
  constexpr int kPanelBytes = kTileBytes<kStageDepth, kPanelColumns>;
  const int thread = lane.thread() - 32 * kGroupWarps;
#pragma unroll 1
  for (int panel = 0; panel < Tiles::kStageBytes; panel += kPanelBytes) {
#pragma unroll 1
    for (int at = first * kPanelRowBytes + 16 * thread; at < kPanelBytes; at += 16 * kThreads) {
      lane.clear_sixteen(shared.at(stage * Tiles::kStageBytes + panel + at));
    }
  }
  lane.publish_stores();
  lane.meet(kAllConsumers, kThreads);
}

template <class Tiles, class Lane>
__device__ void multiply_stage(Lane& lane, float (&sums)[Tiles::kBlocks][4], const GroupedShared<Tiles>& shared,
                               int stage, int group_row, bool add) {
  const auto a = shared.a(stage);
  const auto b = shared.b(stage);
  lane.begin_products();
#pragma unroll
  for (int depth = 0; depth < kStageDepth; depth += 16) {
    lane.template multiply<typename Tiles::Value, Tiles::kAcrossA, Tiles::kAcrossB>(sums, a.at(group_row, depth),
                                                                                    b.at(0, depth), add || depth > 0);
  }
  lane.commit_products();
}

// Computes a consumer's rows of a tile. The products of a stage are queued before the previous stage's are waited for.
template <class Tiles, class Lane>
__device__ void multiply_tile(Lane& lane, float (&sums)[Tiles::kBlocks][4], const GroupedShared<Tiles>& shared,
                              Ring<Tiles::kStages>& at, const TileRange& range, int group_row) {
  const auto ring = shared.ring();
  Ring<Tiles::kStages> before = at;
#pragma unroll 1
  for (int depth = range.depth; depth < range.past_depth; depth += kStageDepth) {
    ring.wait_full(lane, at);
    if constexpr (Tiles::kRowsAreDepth) {
      if (range.past_depth - depth < kStageDepth) clear_rows(lane, shared, at.stage, range.past_depth - depth);
    }
    multiply_stage(lane, sums, shared, at.stage, group_row, depth > range.depth);
    if (depth > range.depth) {
      lane.template wait_for_products<1>();
      ring.release(lane, before);
    }
    before = at;
    at.next();
  }
  lane.template wait_for_products<0>();
  lane.settle(sums);
  ring.release(lane, before);
}

// Passes a tile's stages on for a consumer that has no rows in it.
template <class Tiles, class Lane>
__device__ void skip_tile(Lane& lane, const GroupedShared<Tiles>& shared, Ring<Tiles::kStages>& at,
                          const TileRange& range) {
#pragma unroll 1
  for (int depth = range.depth; depth < range.past_depth; depth += kStageDepth, at.next()) {
    shared.ring().wait_full(lane, at);
    shared.ring().release(lane, at);
  }
}

template <class Tiles, class Lane, class Operands>
__device__ void multiply_groups(Lane& lane, const GroupedShared<Tiles>& shared, const Operands& operands, int block,
                                int blocks) {
  const int group_row = (lane.group() - 1) * Tiles::kGroupRows;
  Ring<Tiles::kStages> at;
  for_tiles(lane, shared, operands.sizes, block, blocks, [&](const TileRange& range) {
    if (!Tiles::kRowsAreDepth && range.row + group_row >= range.past_row) return skip_tile(lane, shared, at, range);
    float sums[Tiles::kBlocks][4];
    multiply_tile(lane, sums, shared, at, range, group_row);
    store_tile<Tiles>(lane, sums, operands, range, group_row);
  });
}

template <class Tiles, class Lane, class Operands>
__device__ void grouped_block(Lane& lane, const Operands& operands, int block, int blocks) {
  const GroupedShared<Tiles> shared{lane.window()};
  if (lane.thread() == 0) {
    shared.ring().begin(lane, 1);
    lane.publish_barriers();
  }
  find_first_tiles(lane, shared, operands.sizes, operands.first_rows);
  if (lane.group() == 0) {
    lane.template give_registers<kProducerRegisters>();
    if (lane.thread() == 0) load_groups(lane, shared, operands, block, blocks);
  } else {
    lane.template take_registers<kConsumerRegisters>();
    multiply_groups(lane, shared, operands, block, blocks);
  }
}

}  // namespace lockstep::kernels
