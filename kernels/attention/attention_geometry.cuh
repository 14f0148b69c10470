// The rows, columns and tiles that a block of an attention kernel works on: arithmetic that needs no device.
//
// The kernels here are templates over Lane, the operations of one thread on the device (cuda_lane.cuh). The test
// compiles them for the CPU, with __device__ and __host__ defined as nothing, and runs them on an emulated block
// (emulated_block.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/attention/attention.h"
#include "kernels/base/tensor_core_tiles.cuh"

namespace lockstep::kernels {

inline constexpr int kMostHeadColumns = 256;
inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = 32 * kAttentionWarps;
inline constexpr float kLog2E = 1.4426950408889634F;
inline constexpr float kLn2 = 0.6931471805599453F;

struct AttentionGeometry {
  int heads;
  int kv_heads;
  int queries;
  int keys;
  int head_columns;
  bool causal;
  bool wide;                // all operands may be read by 16 bytes and written 2 elements at a time
  std::int64_t stride;      // stride of queries
  std::int64_t key_stride;  // key stride of keys and values
  float scale;

  __device__ int group() const { return heads / kv_heads; }  // query heads that share a key head

  // Returns the last key that a query sees. Queries past the end get a key, too: their results are not stored.
  __device__ int last_key(int query) const {
    const std::int64_t causal_last = std::int64_t{query} + keys - queries;
    return causal && causal_last < keys - 1 ? static_cast<int>(causal_last) : keys - 1;
  }
  // Returns the first query that sees a key.
  __device__ int first_query(int key) const {
    const int first = key - (keys - queries);
    return causal && first > 0 ? first : 0;
  }
};

template <class T>
AttentionGeometry geometry_of(const AttentionShape& s, std::initializer_list<const void*> operands) {
  constexpr std::int64_t kPiece = 16 / sizeof(T);
  const auto aligned = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; };
  const bool wide = s.head_columns % kPiece == 0 && s.stride() % kPiece == 0 && s.key_stride() % kPiece == 0 &&
                    std::all_of(operands.begin(), operands.end(), aligned);
  return {.heads = static_cast<int>(s.heads),
          .kv_heads = static_cast<int>(s.key_heads()),
          .queries = static_cast<int>(s.queries),
          .keys = static_cast<int>(s.keys),
          .head_columns = static_cast<int>(s.head_columns),
          .causal = s.causal,
          .wide = wide,
          .stride = s.stride(),
          .key_stride = s.key_stride(),
          .scale = s.factor()};
}

inline std::int64_t query_blocks_of(const AttentionShape& s, int tile_rows) {
  return s.batch * s.heads * ((s.queries + tile_rows - 1) / tile_rows);
}
inline std::int64_t key_blocks_of(const AttentionShape& s, int tile_rows) {
  return s.batch * s.key_heads() * ((s.keys + tile_rows - 1) / tile_rows);
}

__device__ inline int tiles_of(int rows, int tile_rows) {
  return (rows + tile_rows - 1) / tile_rows;
}

// Work of a block: a tile of rows of one head of one sequence, and a slice of the columns that it sums.
struct BlockWork {
  std::int64_t batch;
  int head;
  int tile;
  int slice;
};
__device__ inline BlockWork work_of_block(std::int64_t block, int heads, int tiles, int slices) {
  const std::int64_t sequence = block / slices / tiles;
  return {sequence / heads, static_cast<int>(sequence % heads), static_cast<int>(block / slices % tiles),
          static_cast<int>(block % slices)};
}

// The rows of one head of one sequence in memory.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride;
  int rows;

  __device__ T* row(int r) const { return data + r * stride; }
};

// The rows of a head of queries in q and its gradient.
template <class T>
__device__ HeadRows<T> query_rows(T* base, const AttentionGeometry& g, const BlockWork& work) {
  return {base + work.batch * g.queries * g.stride + std::int64_t{work.head} * g.head_columns, g.stride, g.queries};
}
// The rows of a head of keys in k, v and their gradients.
template <class T>
__device__ HeadRows<T> key_rows(T* base, const AttentionGeometry& g, std::int64_t batch, int key_head) {
  return {base + batch * g.keys * g.key_stride + std::int64_t{key_head} * g.head_columns, g.key_stride, g.keys};
}
// The rows of a head in o and its gradient.
template <class T>
__device__ HeadRows<T> packed_rows(T* base, const AttentionGeometry& g, const BlockWork& work) {
  const std::int64_t stride = std::int64_t{g.heads} * g.head_columns;
  return {base + work.batch * g.queries * stride + std::int64_t{work.head} * g.head_columns, stride, g.queries};
}
// The numbers of a head's rows in lse and delta: [batch, heads, queries].
template <class T>
__device__ T* row_numbers(T* base, const AttentionGeometry& g, const BlockWork& work) {
  return base + (work.batch * g.heads + work.head) * g.queries;
}

}  // namespace lockstep::kernels
