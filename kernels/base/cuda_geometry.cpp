#include "kernels/base/cuda_geometry.h"

#include <algorithm>

namespace lockstep::kernels {
namespace {

constexpr std::int64_t kBlocksAMultiprocessor = 32;  // 8 blocks of 256 threads fit at a time: four waves
constexpr std::int64_t kPacksAThread = 4;            // packs of a row per thread if a block has a row

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

int row_threads(std::int64_t packs, std::int64_t packs_a_thread) {
  const std::int64_t warps = ceil_div(ceil_div(packs, packs_a_thread), kWarpLanes);
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
  return std::min(tiles, kBlocksAMultiprocessor * num_multiprocessors);
}

std::int64_t part_blocks(std::int64_t tiles, int num_multiprocessors) {
  constexpr std::int64_t kAtATime = 8;  // blocks of 256 threads that a multiprocessor runs at a time
  return std::min(tiles, kAtATime * num_multiprocessors);
}

RowLayout block_row_layout(std::int64_t rows, std::int64_t columns, int items, std::size_t stash_bytes_an_elem,
                           int num_multiprocessors) {
  const std::size_t stash_bytes = static_cast<std::size_t>(columns) * stash_bytes_an_elem;
  return {false, row_threads(columns / items, kPacksAThread), grid_blocks(rows, num_multiprocessors),
          stash_bytes <= kStashBytes ? stash_bytes : 0};
}

RowLayout row_layout(std::int64_t rows, std::int64_t columns, int items, std::size_t stash_bytes_an_elem,
                     int num_multiprocessors) {
  if (columns > kWarpRowElems) return block_row_layout(rows, columns, items, stash_bytes_an_elem, num_multiprocessors);
  return {true, kBlockThreads, grid_blocks(ceil_div(rows, kWarpsABlock), num_multiprocessors), 0};
}

std::int64_t column_sum_parts(std::int64_t rows, std::int64_t rows_at_once, int num_multiprocessors) {
  constexpr std::int64_t kPartsAMultiprocessor = 2;
  return std::min(ceil_div(rows, rows_at_once), kPartsAMultiprocessor * num_multiprocessors);
}

EmbeddingWorkspace embedding_workspace(std::int64_t tokens, std::int64_t rows, std::int64_t columns,
                                       std::int64_t segment) {
  const auto ints = [](std::int64_t count) { return static_cast<std::size_t>(count) * sizeof(std::int32_t); };
  WorkspacePlan plan;
  EmbeddingWorkspace at{};
  at.counts = plan.add(ints(rows));
  at.cursors = plan.add(ints(2));
  at.begins = plan.add(ints(rows));
  at.first_segments = plan.add(ints(rows));
  at.slots = plan.add(ints(tokens));
  at.list = plan.add(ints(tokens));
  at.sorted = plan.add(ints(tokens));
  at.segments = plan.add(static_cast<std::size_t>(most_segments(tokens, segment) * columns) * sizeof(float));
  at.total_bytes = plan.total_bytes();
  return at;
}

}  // namespace lockstep::kernels
