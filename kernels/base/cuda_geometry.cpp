#include "kernels/base/cuda_geometry.h"

#include <algorithm>

namespace lockstep::kernels {
namespace {

constexpr std::int64_t kBlocksPerMultiprocessor = 32;  // 8 blocks of 256 threads fit at a time: four waves
constexpr std::int64_t kPacksPerThread = 4;            // packs of a row per thread if a block has a row

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

int row_threads(std::int64_t packs, std::int64_t packs_per_thread) {
  const std::int64_t warps = ceil_div(ceil_div(packs, packs_per_thread), kWarpLanes);
  return static_cast<int>(std::clamp<std::int64_t>(warps, 4, kRowThreads / kWarpLanes)) * kWarpLanes;
}

int items_an_access(std::size_t widest_bytes, std::int64_t row_elems, std::initializer_list<const void*> operands) {
  const auto items = static_cast<int>(kAccessBytes / widest_bytes);
  if (row_elems % items != 0) return 1;
  for (const void* operand : operands) {
    if (reinterpret_cast<std::uintptr_t>(operand) % kAccessBytes != 0) return 1;
  }
  return items;
}

std::int64_t grid_blocks(std::int64_t tiles, int num_multiprocessors) {
  return std::min(tiles, kBlocksPerMultiprocessor * num_multiprocessors);
}

std::int64_t part_blocks(std::int64_t tiles, int num_multiprocessors) {
  constexpr std::int64_t kAtATime = 8;  // blocks of 256 threads that a multiprocessor runs at a time
  return std::min(tiles, kAtATime * num_multiprocessors);
}

RowLayout block_row_layout(std::int64_t rows, std::int64_t columns, int items, std::size_t stash_bytes_an_elem,
                           int num_multiprocessors, int most_cluster) {
  const auto bytes_of = [&](int blocks) {
    return static_cast<std::size_t>(slice_columns(columns, items, blocks)) * stash_bytes_an_elem;
  };
  int cluster = 1;
  while (bytes_of(cluster) > kStashBytesOfTwo && cluster < most_cluster) cluster *= 2;
  if (bytes_of(cluster) > kStashBytes) cluster = 1;
  const std::size_t stash_bytes = bytes_of(cluster);
  return {.warp_per_row = false,
          .threads = row_threads(slice_columns(columns, items, cluster) / items, kPacksPerThread),
          .blocks = cluster * grid_blocks(rows, num_multiprocessors),
          .stash_bytes = stash_bytes <= kStashBytes ? stash_bytes : 0,
          .cluster = cluster};
}

RowLayout row_layout(std::int64_t rows, std::int64_t columns, int items, std::size_t stash_bytes_an_elem,
                     int num_multiprocessors, int most_cluster) {
  if (columns > kWarpRowElems) {
    return block_row_layout(rows, columns, items, stash_bytes_an_elem, num_multiprocessors, most_cluster);
  }
  return {true, kBlockThreads, grid_blocks(ceil_div(rows, kWarpsPerBlock), num_multiprocessors), 0};
}

std::int64_t column_sum_parts(std::int64_t rows, std::int64_t rows_at_once, int num_multiprocessors) {
  constexpr std::int64_t kPartsPerMultiprocessor = 2;
  return std::min(ceil_div(rows, rows_at_once), kPartsPerMultiprocessor * num_multiprocessors);
}

AheadLayout ahead_layout(std::int64_t rows, std::int64_t columns, int items, std::size_t row_bytes_an_elem,
                         int num_multiprocessors, int most_cluster) {
  constexpr std::int64_t kMostColumns = std::int64_t{kRowThreads} * kBlockItems;
  const bool warp_per_row = columns <= kWarpRowElems && items > 1;
  int cluster = 1;
  while (slice_columns(columns, items, cluster) > kMostColumns && cluster < most_cluster) cluster *= 2;
  const std::int64_t slice = slice_columns(columns, items, cluster);
  const int threads = warp_per_row ? kBlockThreads : row_threads(slice, kBlockItems);
  const int teams = warp_per_row ? kWarpsPerBlock : 1;
  const auto bytes_of = [&](int rows_ahead) {
    return static_cast<std::size_t>(std::int64_t{teams} * (rows_ahead + 1) * slice) * row_bytes_an_elem;
  };
  if (slice > kMostColumns || bytes_of(1) > kStashBytes) return {};
  // More than 256 threads leave no registers for a second block.
  const bool two = threads <= kBlockThreads && bytes_of(1) <= kStashBytesOfTwo;
  const int rows_ahead = bytes_of(2) <= (two ? kStashBytesOfTwo : kStashBytes) ? 2 : 1;
  const std::int64_t most_parts = std::max(1, (two ? 2 : 1) * num_multiprocessors / cluster);
  const std::int64_t parts = std::min(ceil_div(rows, teams), most_parts);
  return {.warp_per_row = warp_per_row,
          .threads = threads,
          .blocks = parts * cluster,
          .parts = parts,
          .rows_ahead = rows_ahead,
          .shared_bytes = bytes_of(rows_ahead),
          .cluster = cluster};
}

EmbeddingWorkspace embedding_workspace(std::int64_t tokens, std::int64_t rows, std::int64_t columns,
                                       std::int64_t segment, std::int64_t few_tokens) {
  const auto ints = [](std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(std::int32_t); };
  WorkspacePlan plan;
  EmbeddingWorkspace at{};
  at.counts = plan.add(ints(rows));
  at.begins = plan.add(ints(rows));
  at.first_segments = plan.add(ints(rows));
  at.ended = plan.add(ints(rows));
  at.cursors = plan.add(ints(3));
  at.slots = plan.add(ints(tokens));
  at.list = plan.add(ints(tokens));
  at.sorted = plan.add(ints(tokens));
  at.long_rows = plan.add(ints(tokens / (few_tokens + 1)));
  at.segments = plan.add(static_cast<std::size_t>(most_segments(tokens, segment) * columns) * sizeof(float));
  at.total_bytes = plan.total_bytes();
  return at;
}

}  // namespace lockstep::kernels
