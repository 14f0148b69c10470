// The tile sizes of each kernel: what fits registers (ptxas: at most 24 bytes spilled on tensor cores, 136 in f32) and
// shared memory. Their speed is not measured yet.
#pragma once

#include <type_traits>

#include "kernels/attention/attention_tiles.cuh"

namespace lockstep::kernels {

inline constexpr int kMostHeadColumns = 256;
inline constexpr int kMostTensorCoreColumns = 128;

// columns, bands of 16 rows a warp, streamed rows, stages, slice
template <class T>
struct TensorCoreKernels {
  template <int kColumns>
  using Forward = TensorCoreTiles<T, TileSizes<kColumns, 2, kColumns <= 64 ? 64 : 32, 2>>;
  template <int kColumns>
  using Queries = TensorCoreTiles<T, TileSizes<kColumns, kColumns <= 64 ? 2 : 1, kColumns == 64 ? 32 : 64, 2>>;
  template <int kColumns>
  using Keys = TensorCoreTiles<T, TileSizes<kColumns, 1, kColumns <= 64 ? 64 : 32, 2>>;
};

template <class T>
struct MultiplyAddKernels {
  template <int kColumns>
  using Forward = MultiplyAddTiles<T, TileSizes<kColumns, 1, 32, 1>>;
  template <int kColumns>
  using Queries = Forward<kColumns>;
  template <int kColumns>
  using Keys = MultiplyAddTiles<T, TileSizes<kColumns, 1, 32, 1, kColumns <= 128 ? kColumns : 128>>;
};

// Calls visit(kernels, std::integral_constant<int, columns>) for the kernels that take heads of so many columns.
template <class T, class Visit>
void with_attention_kernels(int head_columns, Visit&& visit) {
  if constexpr (sizeof(T) == 2) {
    constexpr TensorCoreKernels<T> kTensorCores;
    if (head_columns <= 32) return visit(kTensorCores, std::integral_constant<int, 32>{});
    if (head_columns <= 64) return visit(kTensorCores, std::integral_constant<int, 64>{});
    if (head_columns <= kMostTensorCoreColumns) return visit(kTensorCores, std::integral_constant<int, 128>{});
  } else {
    if (head_columns <= 64) return visit(MultiplyAddKernels<T>{}, std::integral_constant<int, 64>{});
    if (head_columns <= 128) return visit(MultiplyAddKernels<T>{}, std::integral_constant<int, 128>{});
  }
  return visit(MultiplyAddKernels<T>{}, std::integral_constant<int, kMostHeadColumns>{});
}

}  // namespace lockstep::kernels
