// Products of tiles in shared memory, by one warp: on tensor cores, or by multiply-adds in f32. Both have the same
// layout of sums (see sum_row), so that the kernels are written once.
//   score       sums[16 m, n] += a[16 m, columns] b[n, columns]^T
//   accumulate  result[16 m, slice] += factors[16 m, n] b[n, slice], where the factors have the layout of sums
#pragma once

#include <type_traits>

#include "kernels/attention/attention_geometry.cuh"

// Offsets in shared memory are small.
// NOLINTBEGIN(bugprone-implicit-widening-of-multiplication-result)
namespace lockstep::kernels {

// Sizes of a kernel's tiles. A block computes kWarps times 16 kBands rows, and streams tiles of kStreamed rows of the
// other operand through kStages buffers. Heads of fewer columns than kColumns are padded with zeros.
template <int kColumnsOf, int kBandsOf, int kStreamedOf, int kStagesOf, int kSliceOf = kColumnsOf>
struct TileSizes {
  static constexpr int kColumns = kColumnsOf;
  static constexpr int kBands = kBandsOf;
  static constexpr int kStreamed = kStreamedOf;
  static constexpr int kStages = kStagesOf;
  static constexpr int kSlice = kSliceOf;  // columns of the result that one block sums
  static constexpr int kSlices = kColumns / kSlice;
  static constexpr int kWarpRows = 16 * kBands;
  static constexpr int kRows = kAttentionWarps * kWarpRows;
  static constexpr int kBlocks = kStreamed / 8;
  static constexpr int kSliceBlocks = kSlice / 8;
  static_assert(kColumns % 16 == 0 && kStreamed % 16 == 0 && kSlice % 16 == 0 && kColumns % kSlice == 0);

  using Sums = float[kBands][kBlocks][4];
  using Result = float[kBands][kSliceBlocks][4];
};

// For T of 16 bits. Rows are padded by 16 bytes, so that the 8 rows of a matrix that ldmatrix reads lie in different
// banks.
template <class T, class SizesOf>
struct TensorCoreTiles : SizesOf {
  using Sizes = SizesOf;
  using Value = T;
  using Element = T;  // in shared memory
  static constexpr int kStride = Sizes::kColumns + 8;

  template <class Lane>
  __device__ static void score(Lane& lane, typename Sizes::Sums& sums, const T* a, const T* b) {
    const int l = lane.lane();
    const T* const a_row = a + l % 16 * kStride + 8 * (l / 16);
    const T* const b_row = b + (l % 8 + 8 * (l / 16)) * kStride + 8 * (l / 8 % 2);
#pragma unroll
    for (int k = 0; k < Sizes::kColumns; k += 16) {
      typename Lane::Fragment a_part[Sizes::kBands];
#pragma unroll
      for (int m = 0; m < Sizes::kBands; ++m) a_part[m] = lane.load_matrices(a_row + 16 * m * kStride + k);
#pragma unroll
      for (int n = 0; n < Sizes::kBlocks; n += 2) {
        const auto b_part = lane.load_matrices(b_row + 8 * n * kStride + k);
#pragma unroll
        for (int m = 0; m < Sizes::kBands; ++m) {
          lane.template multiply_add<T>(sums[m][n], a_part[m], b_part.words[0], b_part.words[1]);
          lane.template multiply_add<T>(sums[m][n + 1], a_part[m], b_part.words[2], b_part.words[3]);
        }
      }
    }
  }

  // The factors are rounded to T.
  template <class Lane>
  __device__ static void accumulate(Lane& lane, typename Sizes::Result& result, const typename Sizes::Sums& factors,
                                    const T* b) {
    const int l = lane.lane();
    const T* const b_row = b + l % 16 * kStride + 8 * (l / 16);
#pragma unroll
    for (int k = 0; k < Sizes::kBlocks; k += 2) {
      typename Lane::Fragment a_part[Sizes::kBands];
#pragma unroll
      for (int m = 0; m < Sizes::kBands; ++m) a_part[m] = rounded<Lane>(factors[m][k], factors[m][k + 1]);
#pragma unroll
      for (int n = 0; n < Sizes::kSliceBlocks; n += 2) {
        const auto b_part = lane.load_matrices_transposed(b_row + 8 * k * kStride + 8 * n);
#pragma unroll
        for (int m = 0; m < Sizes::kBands; ++m) {
          lane.template multiply_add<T>(result[m][n], a_part[m], b_part.words[0], b_part.words[1]);
          lane.template multiply_add<T>(result[m][n + 1], a_part[m], b_part.words[2], b_part.words[3]);
        }
      }
    }
  }

 private:
  // Two blocks of sums in the layout of a product's first factor: rows 0 to 7 and 8 to 15 of the left block, then of
  // the right block.
  template <class Lane>
  __device__ static typename Lane::Fragment rounded(const float (&left)[4], const float (&right)[4]) {
    return {{Lane::template pack<T>(left[0], left[1]), Lane::template pack<T>(left[2], left[3]),
             Lane::template pack<T>(right[0], right[1]), Lane::template pack<T>(right[2], right[3])}};
  }
};

// For any T, in f32.
template <class T, class SizesOf>
struct MultiplyAddTiles : SizesOf {
  using Sizes = SizesOf;
  using Value = T;
  using Element = float;
  static constexpr int kStride = Sizes::kColumns + 4;
  static_assert(Sizes::kBands == 1);

  struct alignas(16) Four {
    float at[4];
  };
  struct alignas(8) Two {
    float at[2];
  };

  template <class Lane>
  __device__ static void score(Lane& lane, typename Sizes::Sums& sums, const float* a, const float* b) {
    const int l = lane.lane();
    const float* const a_row = a + sum_row(l, 0) * kStride;
    const float* const b_row = b + sum_column(l, 0, 0) * kStride;
#pragma unroll 2
    for (int k = 0; k < Sizes::kColumns; k += 4) {
      const Four upper = *reinterpret_cast<const Four*>(a_row + k);
      const Four lower = *reinterpret_cast<const Four*>(a_row + 8 * kStride + k);
#pragma unroll
      for (int n = 0; n < Sizes::kBlocks; ++n) {
        const Four even = *reinterpret_cast<const Four*>(b_row + 8 * n * kStride + k);
        const Four odd = *reinterpret_cast<const Four*>(b_row + (8 * n + 1) * kStride + k);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[0][n][0] += upper.at[i] * even.at[i];
          sums[0][n][1] += upper.at[i] * odd.at[i];
          sums[0][n][2] += lower.at[i] * even.at[i];
          sums[0][n][3] += lower.at[i] * odd.at[i];
        }
      }
    }
  }

  // A factor is held by one of the four lanes that share its row, which passes it to the others.
  template <class Lane>
  __device__ static void accumulate(Lane& lane, typename Sizes::Result& result, const typename Sizes::Sums& factors,
                                    const float* b) {
    const int l = lane.lane();
    const float* const b_pair = b + sum_column(l, 0, 0);
#pragma unroll
    for (int k = 0; k < Sizes::kStreamed; ++k) {
      const int owner = l / 4 * 4 + k % 8 / 2;
      const float upper = lane.from_lane(factors[0][k / 8][k % 2], owner);
      const float lower = lane.from_lane(factors[0][k / 8][2 + k % 2], owner);
#pragma unroll
      for (int n = 0; n < Sizes::kSliceBlocks; ++n) {
        const Two two = *reinterpret_cast<const Two*>(b_pair + k * kStride + 8 * n);
        result[0][n][0] += upper * two.at[0];
        result[0][n][1] += upper * two.at[1];
        result[0][n][2] += lower * two.at[0];
        result[0][n][3] += lower * two.at[1];
      }
    }
  }
};

// Copies rows first_row to first_row + kRows - 1 into shared memory, 16 bytes at a time; they have arrived after
// lane.wait_for_copies(). A thread always copies the same columns.
template <class Tiles, int kRows, class Lane>
__device__ void copy_wide_tile(Lane& lane, typename Tiles::Element* tile, HeadRows<const typename Tiles::Value> from,
                               int first_row, const AttentionGeometry& g) {
  constexpr int kPiece = 16 / static_cast<int>(sizeof(typename Tiles::Value));
  constexpr int kPieces = Tiles::kColumns / kPiece;  // per row
  constexpr int kRowsAtOnce = kAttentionThreads / kPieces;
  static_assert(kAttentionThreads % kPieces == 0 && kRows % kRowsAtOnce == 0);
  const int row = lane.thread() / kPieces;
  const int column = lane.thread() % kPieces * kPiece;
  const int rows_there = column < g.head_columns ? from.rows - first_row - row : 0;
  const auto* source = from.row(first_row + row) + column;
  auto* const to = tile + row * Tiles::kStride + column;
#pragma unroll
  for (int r = 0; r < kRows; r += kRowsAtOnce) {
    lane.template copy<16>(to + r * Tiles::kStride, source, r < rows_there);
    source += kRowsAtOnce * from.stride;
  }
}

// The same with zeros for rows or columns that do not exist.
template <class Tiles, int kRows, class Lane>
__device__ void copy_tile(Lane& lane, typename Tiles::Element* tile, HeadRows<const typename Tiles::Value> from,
                          int first_row, const AttentionGeometry& g) {
  using Element = typename Tiles::Element;
  if constexpr (sizeof(typename Tiles::Value) == sizeof(Element)) {
    if (g.wide) return copy_wide_tile<Tiles, kRows>(lane, tile, from, first_row, g);
  }
#pragma unroll 1
  for (int i = lane.thread(); i < kRows * Tiles::kColumns; i += kAttentionThreads) {
    const int row = i / Tiles::kColumns;
    const int column = i % Tiles::kColumns;
    const bool there = first_row + row < from.rows && column < g.head_columns;
    const float value = there ? Lane::widen(from.row(first_row + row)[column]) : 0.0F;
    tile[row * Tiles::kStride + column] = Lane::template narrow<Element>(value);
  }
}

// Calls copy(tile, stage), which fills buffer number `stage`, and compute(tile, stage) for each tile. With two stages,
// a tile is copied while the previous one is computed. Copies started before the call have also arrived when the first
// tile is computed.
template <int kStages, class Lane, class Copy, class Compute>
__device__ void stream_tiles(Lane& lane, int begin, int end, Copy copy, Compute compute) {
  static_assert(kStages == 1 || kStages == 2);
  if (kStages == 2 && begin < end) copy(begin, 0);
  for (int tile = begin; tile < end; ++tile) {
    const int stage = kStages == 2 ? (tile - begin) % 2 : 0;
    if (kStages == 1) {
      lane.sync();  // all threads have finished with the previous tile
      copy(tile, 0);
    }
    lane.wait_for_copies();
    lane.sync();  // all copies are visible to all threads, and all have finished with the buffer that is filled next
    if (kStages == 2 && tile + 1 < end) copy(tile + 1, 1 - stage);
    compute(tile, stage);
  }
}

// Stores a warp's rows of a result, whose columns begin at `first_column`, times a factor per row.
template <class Tiles, class Lane, class Factor>
__device__ void store_rows(Lane& lane, const typename Tiles::Result& result, HeadRows<typename Tiles::Value> to,
                           int first_row, int first_column, const AttentionGeometry& g, Factor factor) {
  using Value = typename Tiles::Value;
#pragma unroll
  for (int m = 0; m < Tiles::kBands; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + 16 * m + sum_row(lane.lane(), 2 * half);
      if (row >= to.rows) continue;
      const float times = factor(m, half);
#pragma unroll
      for (int n = 0; n < Tiles::kSliceBlocks; ++n) {
        const int column = first_column + sum_column(lane.lane(), n, 0);
        const float left = times * result[m][n][2 * half];
        const float right = times * result[m][n][2 * half + 1];
        Value* const at = to.row(row) + column;
        if (g.wide && column < g.head_columns) {
          Lane::store_pair(at, left, right);
        } else {
          if (column < g.head_columns) at[0] = Lane::template narrow<Value>(left);
          if (column + 1 < g.head_columns) at[1] = Lane::template narrow<Value>(right);
        }
      }
    }
  }
}

// The tile sizes of each kernel: the largest that fit registers (ptxas spills at most 84 bytes) and shared memory. A
// warp on tensor cores reads b from shared memory once for all of its bands: with two bands the products take longer
// than the reads (ldmatrix.x4 takes 4 cycles of a multiprocessor, as long as 2.5 products), so two bands are used
// unless they would leave the device half empty. Their speed has not been measured yet.

inline constexpr int kMostTensorCoreColumns = 128;

// TileSizes: columns, bands of 16 rows per warp, streamed rows, stages, slice
template <class T, int kColumns, bool kSmall = false>
struct TensorCoreKernels {
  using Value = T;
  static constexpr bool kNarrow = kColumns <= 64;
  static constexpr int kBands = kSmall ? 1 : 2;
  static constexpr int kGradientBands = kNarrow ? kBands : 1;  // two results of two bands do not fit registers
  using Forward = TensorCoreTiles<T, TileSizes<kColumns, kBands, kNarrow ? 64 : 32, 2>>;
  using Queries = TensorCoreTiles<T, TileSizes<kColumns, kGradientBands, kColumns == 64 ? 32 : 64, 2>>;
  using Keys = TensorCoreTiles<T, TileSizes<kColumns, kGradientBands, 32, 2>>;
};

template <class T, int kColumns>
struct MultiplyAddKernels {
  using Value = T;
  static constexpr int kStreamed = kColumns <= 64 ? 32 : 16;
  using Forward = MultiplyAddTiles<T, TileSizes<kColumns, 1, kStreamed, 1>>;
  using Queries = Forward;
  using Keys = MultiplyAddTiles<T, TileSizes<kColumns, 1, kStreamed, 1, kColumns <= 64 ? kColumns : 128>>;
};

// Returns whether there would be fewer blocks of 128 rows than run at a time, two per multiprocessor.
inline bool wants_small_tiles(const AttentionShape& s, int num_multiprocessors) {
  return query_blocks_of(s, 2 * 16 * kAttentionWarps) < 2 * std::int64_t{num_multiprocessors};
}

// Calls visit(kernels) for the kernels for this number of columns per head.
template <class T, class Visit>
void with_attention_kernels(int head_columns, bool small, Visit&& visit) {
  if constexpr (sizeof(T) == 2) {
    if (head_columns <= 32) return visit(TensorCoreKernels<T, 32>{});
    if (head_columns <= 64 && small) return visit(TensorCoreKernels<T, 64, true>{});
    if (head_columns <= 64) return visit(TensorCoreKernels<T, 64>{});
    if (head_columns <= kMostTensorCoreColumns) return visit(TensorCoreKernels<T, 128>{});
  } else {
    if (head_columns <= 64) return visit(MultiplyAddKernels<T, 64>{});
  }
  return visit(MultiplyAddKernels<T, kMostHeadColumns>{});
}

}  // namespace lockstep::kernels
// NOLINTEND(bugprone-implicit-widening-of-multiplication-result)
