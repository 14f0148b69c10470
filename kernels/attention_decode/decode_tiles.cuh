// Attention of a decode step on tensor cores, where several rows share a head of keys: a block takes up to 16 of them
// and a part of a context, 64 tokens at a time, of which a warp multiplies 16 with all rows. The warps' maxima, sums
// and results are merged at the end of the part. (Rows of products that no query fills are zeros: with two rows, a
// token still takes fewer instructions than by multiply-adds.)
#pragma once

#include "kernels/attention/attention_forward.cuh"
#include "kernels/attention_decode/decode_block.cuh"
#include "kernels/attention_decode/decode_tiles.h"

// Offsets in shared memory are small.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
namespace lockstep::kernels {

// For T of 16 bits and heads of up to kColumns columns.
template <class T, int kColumns>
struct DecodeTiles : TensorCoreTiles<T, TileSizes<kColumns, 1, 16, 2>> {
  using Tiles = TensorCoreTiles<T, TileSizes<kColumns, 1, 16, 2>>;
  static constexpr int kTokens = kAttentionWarps * Tiles::kStreamed;  // at once
  static constexpr int kTileElems = kTokens * Tiles::kStride;
  static constexpr int kTableAt = kDecodeTileRows * Tiles::kStride + 2 * Tiles::kStages * kTileElems;  // in elements
  static constexpr int kMergeRow = kColumns + 2;  // result, maximum, sum
  static_assert(sizeof(float) * kAttentionWarps * kDecodeTileRows * kMergeRow <= sizeof(T) * 4 * kTileElems);
};

// Queries, tiles of keys and values, the part's entries of the table.
template <class Tiles>
constexpr std::size_t decode_shared_bytes(std::int64_t table_entries) {
  return sizeof(typename Tiles::Element) * Tiles::kTableAt +
         sizeof(std::int32_t) * static_cast<std::size_t>(table_entries);
}

// Copies rows of the head into shared memory, 16 bytes at a time; offset(row) is a row's first element in `from`, or
// negative for a row of zeros.
template <class Tiles, int kRows, class Lane, class Offset>
__device__ void copy_decode_rows(Lane& lane, typename Tiles::Element* to, const typename Tiles::Element* from,
                                 std::int64_t columns, Offset offset) {
  constexpr int kPiece = 16 / static_cast<int>(sizeof(typename Tiles::Element));
  constexpr int kPieces = Tiles::kColumns / kPiece;
  for (int i = lane.thread(); i < kRows * kPieces; i += kAttentionThreads) {
    const int row = i / kPieces;
    const int column = i % kPieces * kPiece;
    const std::int64_t at = offset(row);
    const bool there = at >= 0 && column < columns;
    lane.template copy<16>(to + row * Tiles::kStride + column, there ? from + at + column : from, there);
  }
}

// Stores a warp's rows as [row][result, maximum, sum] in shared memory.
template <class Tiles, class Lane>
__device__ void keep_rows(Lane& lane, const RunningSoftmax<Tiles>& softmax, const typename Tiles::Result& result,
                          float* rows) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float* const row = rows + sum_row(lane.lane(), 2 * half) * Tiles::kMergeRow;
#pragma unroll
    for (int n = 0; n < Tiles::kSliceBlocks; ++n) {
      row[sum_column(lane.lane(), n, 0)] = result[0][n][2 * half];
      row[sum_column(lane.lane(), n, 1)] = result[0][n][2 * half + 1];
    }
    if (lane.lane() % 4 != 0) continue;
    row[Tiles::kColumns] = softmax.maximum[0][half];
    row[Tiles::kColumns + 1] = softmax.sum[0][half];
  }
}

// Merges the warps' results for one column of a row and stores it, as of the whole context or of its part.
template <class Tiles, class Lane, class Operands>
__device__ void merge_column(Lane& /*lane*/, const Operands& args, const DecodeBlock& block, std::int64_t row,
                             const float* of_warps, int column) {
  constexpr int kWarpFloats = kDecodeTileRows * Tiles::kMergeRow;
  float maximum = -INFINITY;
#pragma unroll
  for (int w = 0; w < kAttentionWarps; ++w) maximum = fmaxf(maximum, of_warps[w * kWarpFloats + Tiles::kColumns]);
  const float shift = maximum == -INFINITY ? 0.0F : maximum;
  float sum = 0;
  float result = 0;
#pragma unroll
  for (int w = 0; w < kAttentionWarps; ++w) {
    const float* const its = of_warps + w * kWarpFloats;
    const float weight = Lane::exp2(its[Tiles::kColumns] - shift);
    sum += weight * its[Tiles::kColumns + 1];
    result += weight * its[column];
  }
  if (args.parts == 1) {
    args.o[query_offset(args, row) + column] = Lane::template narrow<typename Tiles::Value>(result / sum);
    if (column == 0) args.lse[row] = kLn2 * shift + logf(sum);
    return;
  }
  const std::int64_t slot = row * args.parts + block.part;
  args.part_o[slot * args.shape.head_columns + column] = result;
  if (column != 0) return;
  args.part_sums[2 * slot] = kLn2 * maximum;
  args.part_sums[2 * slot + 1] = sum;
}

template <class Tiles, class Lane, class Operands>
__device__ void decode_tiles_block(Lane& lane, const Operands& args, std::int64_t number) {
  using Element = typename Tiles::Element;
  const DecodeBlock block = decode_block_of(args, number, kDecodeTileRows);
  if (block.begin >= block.length && block.part > 0) return;
  const std::int64_t columns = args.shape.head_columns;
  const std::int64_t first_row = first_row_of(args, block);
  const int num_rows = args.piece_rows - block.first_row < kDecodeTileRows
                           ? static_cast<int>(args.piece_rows - block.first_row)
                           : kDecodeTileRows;
  const int num_tokens = block.end > block.begin ? static_cast<int>(block.end - block.begin) : 0;
  Element* const queries = static_cast<Element*>(lane.shared());
  Element* const streamed = queries + kDecodeTileRows * Tiles::kStride;
  auto* const blocks = reinterpret_cast<std::int32_t*>(queries + Tiles::kTableAt);
  if (args.table != nullptr) {
    const std::int32_t* const table = table_of(args, block);
    for (int i = lane.thread(); i * args.cache.block < num_tokens; i += kAttentionThreads) blocks[i] = table[i];
    lane.sync();
  }
  copy_decode_rows<Tiles, kDecodeTileRows>(lane, queries, args.q, columns, [&](int row) {
    return row < num_rows ? query_offset(args, first_row + row) : std::int64_t{-1};
  });

  int limits[2];  // the first tokens that the lane's rows of sums do not see
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    limits[half] = static_cast<int>(limit_of(args, block, sum_row(lane.lane(), 2 * half)) - block.begin);
  }
  RunningSoftmax<Tiles> softmax;
  typename Tiles::Result result = {};
  const auto copy = [&](int tile, int stage) {
    const auto token = [&](int row) {
      const int t = tile * Tiles::kTokens + row;
      return t < num_tokens ? offset_of(args, block, blocks, block.begin + t) : std::int64_t{-1};
    };
    Element* const to = streamed + stage * 2 * Tiles::kTileElems;
    copy_decode_rows<Tiles, Tiles::kTokens>(lane, to, args.k, columns, token);
    copy_decode_rows<Tiles, Tiles::kTokens>(lane, to + Tiles::kTileElems, args.v, columns, token);
  };
  const auto compute = [&](int tile, int stage) {
    const int first = tile * Tiles::kTokens + lane.warp() * Tiles::kStreamed;
    if (first >= num_tokens) return;
    const Element* const keys =
        streamed + stage * 2 * Tiles::kTileElems + lane.warp() * Tiles::kStreamed * Tiles::kStride;
    typename Tiles::Sums scores = {};
    Tiles::score(lane, scores, queries, keys);
    for_each_sum<Tiles>(lane, 0, first, [&](int m, int n, int e, int /*row*/, int token) {
      if (token >= limits[e / 2]) scores[m][n][e] = -INFINITY;
    });
    float fade[1][2];
    softmax.weigh(lane, scores, args.factor * kLog2E, fade);
    fade_rows<Tiles>(result, fade);
    Tiles::accumulate(lane, result, scores, keys + Tiles::kTileElems);
  };
  stream_tiles<Tiles::kStages>(lane, 0, tiles_of(num_tokens, Tiles::kTokens), copy, compute);

  softmax.finish(lane);
  lane.wait_for_copies();
  lane.sync();  // all warps have finished with the tiles, whose memory the results take
  auto* const of_warps = reinterpret_cast<float*>(streamed);
  keep_rows<Tiles>(lane, softmax, result, of_warps + lane.warp() * kDecodeTileRows * Tiles::kMergeRow);
  lane.sync();
  for (int i = lane.thread(); i < num_rows * Tiles::kColumns; i += kAttentionThreads) {
    const int row = i / Tiles::kColumns;
    const int column = i % Tiles::kColumns;
    if (column >= columns) continue;
    merge_column<Tiles>(lane, args, block, first_row + row, of_warps + row * Tiles::kMergeRow, column);
  }
}

}  // namespace lockstep::kernels
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
