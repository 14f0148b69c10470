// The tile sizes of each kernel: the largest that fit registers (ptxas spills at most 84 bytes) and shared memory. A
// warp on tensor cores reads b from shared memory once for all of its bands: with two bands the products take longer
// than the reads (ldmatrix.x4 takes 4 cycles of a multiprocessor, as long as 2.5 products), so two bands are used
// unless they would leave the device half empty. Their speed has not been measured yet.
#pragma once

#include <type_traits>

#include "kernels/attention/attention_tiles.cuh"

namespace lockstep::kernels {

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
