#include "workload/grid_product.h"

#include "core/options.h"

namespace lockstep::workload {
namespace {

using schedules::Comm;
using schedules::GroupKind;

constexpr const char* kAllowed = "QxQ for 2-D, QxQxQ for 3-D, 2.5d:QxQxD with D at most Q; Q from 2 to 8";
constexpr std::int32_t kMostSide = 8;

// The axis along which the columns of a matrix are split in three dimensions.
GroupKind axis_of_inputs(const GridLinear& linear) {
  return linear.swapped ? GroupKind::tensor_row : GroupKind::tensor_depth;
}
GroupKind axis_of_outputs(const GridLinear& linear) {
  return linear.swapped ? GroupKind::tensor_depth : GroupKind::tensor_row;
}

bool is_three(const Grid& grid) {
  return grid.form == GridForm::three;
}

GridStep exchange(Comm comm, GroupKind axis, GridMatrix matrix, GridProduct product, std::int32_t number = 0) {
  return {.comm = comm, .axis = axis, .root = number, .matrix = matrix, .product = product, .number = number};
}

// In SUMMA, of y and x's gradient, the one whose panels are reduced.
GridProduct making_of(const GridLinear& linear) {
  return linear.transposed ? GridProduct::forward : GridProduct::input_gradient;
}

// SUMMA: `side` products of panels that their owners broadcast. Of the three products of a layer one adds to a block of
// the rank's own; in the other two the result goes to the owner of that block of y, of x's or of w's gradient.
void add_summa(std::vector<GridStep>& steps, const GridLinear& linear, GridProduct product) {
  const std::int32_t side = linear.grid.side;
  if (side == 1) {
    steps.push_back({.product = product});
    return;
  }
  const GridProduct making = making_of(linear);
  const GridMatrix moving = made_by(making);  // its panels move along rows
  const auto fetch = [&](std::int32_t t) {
    if (product != making) steps.push_back(exchange(Comm::broadcast, GroupKind::tensor_row, moving, product, t));
    if (product != GridProduct::weight_gradient) {
      steps.push_back(exchange(Comm::broadcast, GroupKind::tensor_column, GridMatrix::w, product, t));
    }
  };
  fetch(0);
  for (std::int32_t t = 0; t < side; ++t) {
    if (t + 1 < side) fetch(t + 1);
    steps.push_back({.product = product, .number = t});
    if (product == making) {
      steps.push_back(exchange(Comm::reduce, GroupKind::tensor_row, moving, product, t));
    } else if (product == GridProduct::weight_gradient) {
      steps.push_back(exchange(Comm::reduce, GroupKind::tensor_column, GridMatrix::w, product, t));
    }
  }
}

}  // namespace

Grid parse_grid(std::string_view text) {
  constexpr std::string_view kTwoHalf = "2.5d:";
  const bool is_two_half = text.starts_with(kTwoHalf);
  std::vector<std::int32_t> sides;
  for (const std::string_view part : core::split(text.substr(is_two_half ? kTwoHalf.size() : 0), 'x')) {
    sides.push_back(core::parse_number<std::int32_t>(part).value_or(0));
  }
  const bool is_square = sides.size() >= 2 && sides[0] == sides[1] && sides[0] >= 2 && sides[0] <= kMostSide;
  if (is_square && sides.size() == 2 && !is_two_half) return {GridForm::two, sides[0], 1};
  const bool fits = is_square && sides.size() == 3 && sides[2] >= 1 && sides[2] <= sides[0];
  if (!fits || (!is_two_half && sides[2] != sides[0]))
    throw core::OptionText{"", std::string(text)}.refused("not a grid", kAllowed);
  return {is_two_half ? GridForm::two_half : GridForm::three, sides[0], sides[2]};
}

std::string text_of(const Grid& grid) {
  const std::string side = std::to_string(grid.side);
  if (grid.form == GridForm::two) return side + "x" + side;
  return (grid.form == GridForm::two_half ? "2.5d:" : "") + side + "x" + side + "x" + std::to_string(grid.depth);
}

GridCoordinates place_of(const Grid& grid, std::int32_t rank) {
  const std::int32_t square = grid.side * grid.side;
  return {.row = rank % square / grid.side, .column = rank % grid.side, .layer = rank / square};
}

std::int32_t stride_along(const Grid& grid, GroupKind axis) {
  switch (axis) {
    case GroupKind::tensor_row:
      return 1;
    case GroupKind::tensor_column:
      return grid.side;
    default:
      return grid.side * grid.side;
  }
}

std::int32_t members_along(const Grid& grid, GroupKind axis) {
  return axis == GroupKind::tensor_depth ? grid.depth : grid.side;
}

GroupKind axis_of_columns(const GridLinear& linear, GridMatrix matrix) {
  if (!is_three(linear.grid)) return GroupKind::tensor_row;
  return matrix == GridMatrix::y ? axis_of_outputs(linear) : axis_of_inputs(linear);
}

GroupKind axis_of_embedding(const Grid& grid) {
  return is_three(grid) ? GroupKind::tensor_row : GroupKind::tensor_column;
}

GridDivisors divisors_of(const Grid& grid) {
  const std::int64_t side = grid.side;
  if (is_three(grid)) return {.rows = side * side, .inputs = side, .outputs = side * side};
  return {.rows = side * grid.depth, .inputs = side, .outputs = side};
}

GridBlock panel_of(const GridLinear& linear, GridMatrix matrix) {
  const std::int64_t side = linear.grid.side;
  const std::int64_t rows = linear.rows / (is_three(linear.grid) ? side : side * linear.grid.depth);
  switch (matrix) {
    case GridMatrix::x:
      return {0, 0, rows, linear.inputs / side};
    case GridMatrix::w:
      return {0, 0, linear.outputs / side, linear.inputs / side};
    default:
      return {0, 0, rows, linear.outputs / side};
  }
}

GridBlock block_of(const GridLinear& linear, GridMatrix matrix, std::int32_t rank) {
  const GridCoordinates place = place_of(linear.grid, rank);
  const std::int64_t side = linear.grid.side;
  GridBlock block = panel_of(linear, matrix);
  // Block (r, c) of panels, and in three dimensions the index of the `side`th of its rows.
  std::int64_t r = 0;
  std::int64_t c = 0;
  std::int64_t share = 0;
  if (is_three(linear.grid)) {
    const std::int64_t input = place.along(axis_of_inputs(linear));
    const std::int64_t output = place.along(axis_of_outputs(linear));
    r = matrix == GridMatrix::w ? output : place.row;
    c = matrix == GridMatrix::y ? output : input;
    share = matrix == GridMatrix::w ? place.row : matrix == GridMatrix::x ? output : input;
    block.rows /= side;
  } else {
    // w [outputs, inputs] is the transpose of SUMMA's second factor, of which the rank has block (row, column).
    const bool is_factor = matrix == GridMatrix::w && !linear.transposed;
    r = is_factor ? place.column : matrix == GridMatrix::w ? place.row : place.layer * side + place.row;
    c = is_factor ? place.row : place.column;
  }
  block.first_row = r * panel_of(linear, matrix).rows + share * block.rows;
  block.first_column = c * block.columns;
  return block;
}

bool is_local_sum(const GridLinear& linear, GridProduct product) {
  return !is_three(linear.grid) && product != making_of(linear) && product != GridProduct::weight_gradient;
}

std::vector<GridStep> forward_steps(const GridLinear& linear) {
  constexpr GridProduct kProduct = GridProduct::forward;
  std::vector<GridStep> steps;
  if (!is_three(linear.grid)) {
    add_summa(steps, linear, kProduct);
    return steps;
  }
  steps.push_back(exchange(Comm::all_gather, axis_of_outputs(linear), GridMatrix::x, kProduct));
  steps.push_back(exchange(Comm::all_gather, GroupKind::tensor_column, GridMatrix::w, kProduct));
  steps.push_back({.product = kProduct});
  steps.push_back(exchange(Comm::reduce_scatter, axis_of_inputs(linear), GridMatrix::y, kProduct));
  return steps;
}

std::vector<GridStep> backward_steps(const GridLinear& linear) {
  std::vector<GridStep> steps;
  if (!is_three(linear.grid)) {
    add_summa(steps, linear, GridProduct::input_gradient);
    add_summa(steps, linear, GridProduct::weight_gradient);
    if (linear.grid.depth > 1) {
      steps.push_back(exchange(Comm::all_reduce, GroupKind::tensor_depth, GridMatrix::w, GridProduct::weight_gradient));
    }
    return steps;
  }
  // The gathered gradient of y serves both products.
  constexpr GridProduct kInput = GridProduct::input_gradient;
  constexpr GridProduct kWeight = GridProduct::weight_gradient;
  steps.push_back(exchange(Comm::all_gather, axis_of_inputs(linear), GridMatrix::y, kInput));
  steps.push_back(exchange(Comm::all_gather, GroupKind::tensor_column, GridMatrix::w, kInput));
  steps.push_back(exchange(Comm::all_gather, axis_of_outputs(linear), GridMatrix::x, kWeight));
  steps.push_back({.product = kInput});
  steps.push_back(exchange(Comm::reduce_scatter, axis_of_outputs(linear), GridMatrix::x, kInput));
  steps.push_back({.product = kWeight});
  steps.push_back(exchange(Comm::reduce_scatter, GroupKind::tensor_column, GridMatrix::w, kWeight));
  return steps;
}

}  // namespace lockstep::workload
