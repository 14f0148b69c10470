// Tensor parallelism in two and three dimensions: a linear layer y = x w^T, split over a grid of ranks. Defines the
// block of each matrix that a rank has, and lists a rank's steps in a forward and in a backward. The list is the same
// for all ranks, which differ only in their blocks.
//
//   two       side x side ranks; x, w and y in side x side blocks. SUMMA (van de Geijn and Watts 1997, Concurrency
//             9(4)), for layers Xu et al. 2021 (Optimus), arXiv:2104.05343, section 3.
//   two_half  `depth` such squares; each has a share of the rows of x and y, and all of w. Wang et al. 2021
//             (Tesseract), arXiv:2105.14500, section 3; with depth = side, Solomonik and Demmel 2011.
//   three     side^3 ranks; no two have an element in common. Agarwal et al. 1995, IBM J. Res. Dev. 39(5); for layers
//             Bian et al. 2021, arXiv:2105.14450, section 3. The output's columns are split along the axis of the
//             input's blocks of rows, so that layers alternate (GridLinear::swapped).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::workload {

enum class GridForm : std::uint8_t { two, two_half, three };

struct Grid {
  GridForm form = GridForm::two;
  std::int32_t side = 1;
  std::int32_t depth = 1;  // 1 in two dimensions, `side` in three

  std::int32_t ranks() const { return side * side * depth; }
  friend bool operator==(const Grid&, const Grid&) = default;
};
// Number of the grid's ranks that have different parts of a weight matrix.
inline std::int32_t weight_parts(const Grid& grid) {
  return grid.form == GridForm::three ? grid.ranks() : grid.side * grid.side;
}

// "2x2", "2x2x2", "2.5d:2x2x2" and "2.5d:4x4x2". Throws a usage Error with the allowed values, without a flag's name.
Grid parse_grid(std::string_view text);
std::string text_of(const Grid& grid);

// The coordinates of a rank in a grid. Ranks that differ in only one of them are a group along that axis: tensor_row,
// the members of a row, which differ in their column; tensor_column; tensor_depth.
inline constexpr std::array kGridGroups{schedules::GroupKind::tensor_row, schedules::GroupKind::tensor_column,
                                        schedules::GroupKind::tensor_depth};
struct GridCoordinates {
  std::int32_t row = 0;
  std::int32_t column = 0;
  std::int32_t layer = 0;
  // A member's index in its group.
  std::int32_t along(schedules::GroupKind axis) const {
    using schedules::GroupKind;
    return axis == GroupKind::tensor_row ? column : axis == GroupKind::tensor_column ? row : layer;
  }
};
GridCoordinates place_of(const Grid& grid, std::int32_t rank);
std::int32_t stride_along(const Grid& grid, schedules::GroupKind axis);  // distance between the ranks of neighbours
std::int32_t members_along(const Grid& grid, schedules::GroupKind axis);

// The matrices of a layer; their gradients are split in the same way.
enum class GridMatrix : std::uint8_t { x, w, y };
inline constexpr std::size_t kNumGridMatrices = 3;

struct GridLinear {
  Grid grid;
  std::int64_t rows = 0;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  // In three dimensions: the columns of x are split along the rows of the grid and those of y along its depth;
  // otherwise the other way around.
  bool swapped = false;
  // In the other forms: block (r, c) of w is on the rank at row r and column c, as an embedding needs it whose table is
  // also the head's matrix; otherwise on that at row c and column r. SUMMA then sums y = x w^T instead of x's gradient.
  bool transposed = false;
};

struct GridBlock {
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t elems() const { return rows * columns; }
};
// The block that a rank has: of x [rows, inputs], of w [outputs, inputs], of y [rows, outputs].
GridBlock block_of(const GridLinear& linear, GridMatrix matrix, std::int32_t rank);
// The block that it multiplies: its own, or one received by a broadcast or an all-gather.
GridBlock panel_of(const GridLinear& linear, GridMatrix matrix);  // only its sizes

// Each dimension of the layer must be a multiple of these.
struct GridDivisors {
  std::int64_t rows = 1, inputs = 1, outputs = 1;
};
GridDivisors divisors_of(const Grid& grid);

// The axis along which the columns of x, or of y, are split.
schedules::GroupKind axis_of_columns(const GridLinear& linear, GridMatrix matrix);
// The axis whose ranks have the panels of an embedding's table with the other words, and look up each other's rows.
schedules::GroupKind axis_of_embedding(const Grid& grid);

// ---- a rank's steps

enum class GridProduct : std::uint8_t { forward, input_gradient, weight_gradient };
// The matrix that a product makes, or whose gradient; the two others are its operands.
constexpr GridMatrix made_by(GridProduct product) {
  if (product == GridProduct::forward) return GridMatrix::y;
  return product == GridProduct::input_gradient ? GridMatrix::x : GridMatrix::w;
}

struct GridStep {
  // The collective of an exchange; none: a product. broadcast, all_gather: from the block to a panel. reduce,
  // reduce_scatter: from the sums of a product to the block of the gradient or output. all_reduce: of the block, in
  // place.
  schedules::Comm comm = schedules::Comm::none;
  schedules::GroupKind axis = schedules::GroupKind::tensor_row;
  std::int32_t root = 0;              // the member that has, or gets, the block
  GridMatrix matrix = GridMatrix::x;  // for a reduction: that matrix's gradient is summed; in the forward, y itself
  GridProduct product = GridProduct::forward;
  std::int32_t number = 0;  // index of the panel among SUMMA's `side` products

  bool is_exchange() const { return comm != schedules::Comm::none; }
  bool is_fetch() const { return comm == schedules::Comm::broadcast || comm == schedules::Comm::all_gather; }
};
// In a valid sequential order. If there are several panels, the next is fetched before the product of the previous one,
// so that exchanges in this order may overlap with products in this order.
std::vector<GridStep> forward_steps(const GridLinear& linear);
std::vector<GridStep> backward_steps(const GridLinear& linear);
// True if SUMMA's products of this kind add to a block of the rank's own; the results of others are reduced.
bool is_local_sum(const GridLinear& linear, GridProduct product);

}  // namespace lockstep::workload
