// The tiles of a product of groups, which block computes which, and the operands: arithmetic that needs no device. For
// the kernel of experts_hopper.cuh.
//
//   forward          c[rows of g, outputs] = x[rows of g, inputs] w[g]^T
//   input gradient   c[rows of g, inputs] = dy[rows of g, outputs] w[g]
//   weight gradient  c[g][outputs, inputs] += dy[rows of g]^T x[rows of g]
//
// The rows of all groups are one matrix, whose group g has rows first_rows[g] to first_rows[g + 1] - 1. These numbers
// are read from device memory, so that the kernel does not depend on what the host knows.
#pragma once

#include <cstddef>
#include <utility>

#include "kernels/base/tensor_core_tiles.cuh"
#include "kernels/base/tensor_map.h"
#include "kernels/gemm/gemm_product.h"
#include "kernels/moe/grouped_gemm.h"

namespace lockstep::kernels {

inline constexpr int kMostGroups = 64;  // per launch, because tensor maps of their weights are arguments of the kernel

inline constexpr int kStageDepth = kPanelColumns;  // depth of a stage of the ring: one panel along rows

enum class Direction : std::uint8_t { forward, input_gradient, weight_gradient };

// ---- the tiles of c, and which block computes them

// A group's rows are the rows of its c, or, for a weight gradient, the depth.
struct GroupedSizes {
  int groups;
  int rows_of_c;  // for a weight gradient
  int columns;
  int depth;  // otherwise
};

template <class T, Direction kDirectionOf, int kColumnsOf>
struct ExpertTiles {
  using Value = T;
  static constexpr Direction kDirection = kDirectionOf;
  static constexpr bool kRowsAreDepth = kDirection == Direction::weight_gradient;
  // Whether the depth of a factor lies across the rows of its array.
  static constexpr bool kAcrossA = kRowsAreDepth;
  static constexpr bool kAcrossB = kDirection != Direction::forward;
  static constexpr int kGroupRows = 64;  // rows of c per consumer
  static constexpr int kRows = kConsumers * kGroupRows;
  static constexpr int kColumns = kColumnsOf;
  static constexpr int kBlocks = kColumns / 8;
  static constexpr int kBytesA = kTileBytes<kRows, kStageDepth>;
  static constexpr int kStageBytes = kBytesA + kTileBytes<kColumns, kStageDepth>;
  static constexpr int kStages = (192 << 10) / kStageBytes;
};

// Part of a tile's computation: elements of c from (row, column) to before (past_row, ...), summed over a depth. Rows
// and depth count from the beginning of the array that they lie in.
struct TileRange {
  int group;
  int row;
  int past_row;
  int column;
  int depth;
  int past_depth;
};

__device__ inline int whole_tiles(int elems, int tile) {
  return (elems + tile - 1) / tile;
}

// A group without rows has no tiles: it adds nothing to its gradient.
template <class Tiles>
__device__ int tiles_of_group(const GroupedSizes& sizes, int rows) {
  if (rows == 0) return 0;
  return whole_tiles(Tiles::kRowsAreDepth ? sizes.rows_of_c : rows, Tiles::kRows) *
         whole_tiles(sizes.columns, Tiles::kColumns);
}

// Returns the group of a tile, which is the last one whose first tile is not after it. first_tile(group) returns the
// number of tiles before the group.
template <class FirstTile>
__device__ int group_of_tile(int tile, int groups, const FirstTile& first_tile) {
  int group = 0;
  int past = groups;
  while (past - group > 1) {
    const int middle = (group + past) / 2;
    if (first_tile(middle) <= tile) {
      group = middle;
    } else {
      past = middle;
    }
  }
  return group;
}

// Tiles of the same columns follow each other: blocks that run at the same time read the same weights.
template <class Tiles, class FirstTile, class FirstRow>
__device__ TileRange range_of_tile(int tile, const GroupedSizes& sizes, const FirstTile& first_tile,
                                   const FirstRow& first_row) {
  const int group = group_of_tile(tile, sizes.groups, first_tile);
  const int first = first_row(group);
  const int past = first_row(group + 1);
  const int rows = Tiles::kRowsAreDepth ? sizes.rows_of_c : past - first;
  const int row_tiles = whole_tiles(rows, Tiles::kRows);
  const int of_group = tile - first_tile(group);
  const int row = of_group % row_tiles * Tiles::kRows;
  const int column = of_group / row_tiles * Tiles::kColumns;
  if (Tiles::kRowsAreDepth) return {group, row, rows, column, first, past};
  return {group, first + row, past, column, 0, sizes.depth};
}

// ---- operands

template <class Map>
struct GroupedOperands {
  GroupedSizes sizes;
  Finish finish;
  const std::int32_t* first_rows;  // [groups + 1], on the device
  Map a;
  Map b[kMostGroups];  // weights of each group; for a weight gradient, the first is x
  const void* bias[kMostGroups];
  void* c[kMostGroups];  // each group's gradient; otherwise the first is the matrix of all groups
  void* pre_written;
  const void* pre_read;
};

// ---- from arguments to operands, for a range of at most kMostGroups groups; map_of(matrix) returns a Map

struct GroupRange {
  std::size_t first;
  int count;
};

// The most tiles that the groups can have, whatever their rows are: each has at most one tile of rows that is not full.
template <class Tiles>
std::int64_t most_tiles(const GroupedShape& shape, GroupRange range) {
  const auto whole = [](std::int64_t elems, int tile) { return (elems + tile - 1) / tile; };
  const std::int64_t column_tiles =
      whole(Tiles::kDirection == Direction::forward ? shape.outputs : shape.inputs, Tiles::kColumns);
  if (Tiles::kRowsAreDepth) return range.count * whole(shape.outputs, Tiles::kRows) * column_tiles;
  return (shape.all_rows() / Tiles::kRows + range.count) * column_tiles;
}

inline HeadTensor matrix_of(const In& of, std::int64_t columns, int box_rows) {
  return {of.data, columns, 1, of.elems / columns, 1, 2 * columns, box_rows};
}

template <class Tiles, class Map>
GroupedOperands<Map> sized_operands(const GroupedShape& shape, GroupRange range, const std::int32_t* first_rows) {
  GroupedOperands<Map> operands{};
  std::int64_t columns = shape.inputs;
  std::int64_t depth = shape.outputs;
  if (Tiles::kDirection == Direction::forward) std::swap(columns, depth);
  operands.sizes = {range.count, static_cast<int>(shape.outputs), static_cast<int>(columns), static_cast<int>(depth)};
  operands.first_rows = first_rows + range.first;
  return operands;
}

template <class Tiles, class Map, class MapOf>
GroupedOperands<Map> operands_of_groups(const GroupedGemmForward& args, GroupRange range,
                                        const std::int32_t* first_rows, MapOf map_of) {
  auto operands = sized_operands<Tiles, Map>(args.shape, range, first_rows);
  operands.finish = product_of(GemmForward{.shape = {1, 1, 1}, .epilogue = args.epilogue}).c.finish;
  operands.a = map_of(matrix_of(args.x, args.shape.inputs, Tiles::kRows));
  for (int g = 0; g < range.count; ++g) {
    operands.b[g] =
        map_of(matrix_of(args.w[range.first + static_cast<std::size_t>(g)], args.shape.inputs, Tiles::kColumns));
    if (args.epilogue != Epilogue::none) operands.bias[g] = args.bias[range.first + static_cast<std::size_t>(g)].data;
  }
  operands.c[0] = args.y.data;
  operands.pre_written = args.pre.data;
  return operands;
}

template <class Tiles, class Map, class MapOf>
GroupedOperands<Map> operands_of_groups(const GroupedGemmInputGradient& args, GroupRange range,
                                        const std::int32_t* first_rows, MapOf map_of) {
  auto operands = sized_operands<Tiles, Map>(args.shape, range, first_rows);
  operands.finish = args.through_gelu ? Finish::times_gelu_slope : Finish::store;
  operands.a = map_of(matrix_of(args.dy, args.shape.outputs, Tiles::kRows));
  for (int g = 0; g < range.count; ++g) {
    operands.b[g] =
        map_of(matrix_of(args.w[range.first + static_cast<std::size_t>(g)], args.shape.inputs, kStageDepth));
  }
  operands.c[0] = args.dx.data;
  operands.pre_read = args.pre.data;
  return operands;
}

template <class Tiles, class Map, class MapOf>
GroupedOperands<Map> operands_of_groups(const GroupedGemmWeightGradient& args, GroupRange range,
                                        const std::int32_t* first_rows, MapOf map_of) {
  auto operands = sized_operands<Tiles, Map>(args.shape, range, first_rows);
  operands.finish = Finish::add;
  operands.a = map_of(matrix_of(args.dy, args.shape.outputs, kStageDepth));
  operands.b[0] = map_of(matrix_of(args.x, args.shape.inputs, kStageDepth));
  for (int g = 0; g < range.count; ++g) operands.c[g] = args.dw[range.first + static_cast<std::size_t>(g)].data;
  return operands;
}

}  // namespace lockstep::kernels
