// The lists of a linear layer on a grid: run with numbers, and counted against the papers' formulas.
#include "workload/grid_product.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/error.h"

namespace lockstep::workload {
namespace {

const std::vector<std::string> kGrids{"2x2", "3x3", "2.5d:2x2x1", "2.5d:2x2x2", "2.5d:3x3x2", "2x2x2", "3x3x3"};

GridLinear linear_on(const std::string& grid, bool swapped = false) {
  return {.grid = parse_grid(grid), .rows = 36, .inputs = 36, .outputs = 108, .swapped = swapped};
}

TEST(GridText, IsReadAndWritten) {
  for (const std::string& text : kGrids) EXPECT_EQ(text_of(parse_grid(text)), text);
  EXPECT_EQ(parse_grid("2.5d:4x4x2").ranks(), 32);
  for (const char* text :
       {"", "2", "2x3", "1x1", "2x2x3", "4x4x2", "2.5d:2x2", "2.5d:2x2x3", "2x2x", "x", "9x9", "2*2"}) {
    EXPECT_THROW(parse_grid(text), core::Error) << text;
  }
}

TEST(GridGroups, EachRankIsInOneGroupOfEachAxisAtItsPlace) {
  for (const std::string& text : kGrids) {
    const Grid grid = parse_grid(text);
    for (const GridAxis axis : {GridAxis::along_row, GridAxis::along_column, GridAxis::along_depth}) {
      std::set<std::int32_t> seen;
      for (const auto& group : groups_along(grid, axis)) {
        for (std::size_t m = 0; m < group.size(); ++m) {
          EXPECT_TRUE(seen.insert(group[m]).second);
          EXPECT_EQ(place_of(grid, group[m]).along(axis), static_cast<std::int32_t>(m));
        }
      }
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(grid.ranks()));
    }
  }
}

// An element of a matrix is in as many blocks as the form says: of w once in each square, otherwise once.
TEST(GridBlocks, CoverEachMatrix) {
  for (const std::string& text : kGrids) {
    for (const bool swapped : {false, true}) {
      const GridLinear linear = linear_on(text, swapped);
      for (const GridMatrix matrix : {GridMatrix::x, GridMatrix::w, GridMatrix::y}) {
        std::map<std::pair<std::int64_t, std::int64_t>, int> times;
        for (std::int32_t rank = 0; rank < linear.grid.ranks(); ++rank) {
          const GridBlock block = block_of(linear, matrix, rank);
          for (std::int64_t i = 0; i < block.elems(); ++i) {
            ++times[{block.first_row + i / block.columns, block.first_column + i % block.columns}];
          }
        }
        const int copies = linear.grid.form == GridForm::two_half && matrix == GridMatrix::w ? linear.grid.depth : 1;
        const std::int64_t rows = matrix == GridMatrix::w ? linear.outputs : linear.rows;
        const std::int64_t columns = matrix == GridMatrix::y ? linear.outputs : linear.inputs;
        EXPECT_EQ(static_cast<std::int64_t>(times.size()), rows * columns) << text;
        for (const auto& [place, count] : times) EXPECT_EQ(count, copies) << text;
      }
    }
  }
}

// The next layer of a pair takes its input where this one leaves its output.
TEST(GridBlocks, TheOutputLiesAsTheNextLayersInput) {
  for (const std::string& text : kGrids) {
    const GridLinear first = linear_on(text);
    const GridLinear second{first.grid, first.rows, first.outputs, first.inputs, true};
    for (std::int32_t rank = 0; rank < first.grid.ranks(); ++rank) {
      const GridBlock out = block_of(first, GridMatrix::y, rank);
      const GridBlock in = block_of(second, GridMatrix::x, rank);
      EXPECT_EQ(std::tie(out.first_row, out.first_column, out.rows, out.columns),
                std::tie(in.first_row, in.first_column, in.rows, in.columns));
    }
  }
}

double sent_bytes(const GridLinear& linear, const std::vector<GridStep>& steps, double size) {
  double sent = 0;
  for (const GridStep& step : steps) {
    if (!step.is_exchange) continue;
    const bool is_weight_gradient = step.comm != GridComm::broadcast && step.comm != GridComm::all_gather &&
                                    step.product == GridProduct::weight_gradient;
    const double n = members_along(linear.grid, step.axis);
    // Size of the whole: the block that is broadcast or reduced; the panel of the others.
    const bool is_panel = step.comm == GridComm::all_gather || step.comm == GridComm::reduce_scatter;
    const GridBlock whole = is_panel ? panel_of(linear, step.matrix) : block_of(linear, step.matrix, 0);
    const double share = static_cast<double>(whole.elems()) * (is_weight_gradient ? 4 : size) * (n - 1) / n;
    sent += step.comm == GridComm::all_reduce ? 2 * share : share;
  }
  return sent;
}

TEST(GridSteps, SendAsThePapersSay) {
  for (const std::string& text : kGrids) {
    for (const bool swapped : {false, true}) {
      const GridLinear linear = linear_on(text, swapped);
      for (const int size : {2, 4}) {
        EXPECT_NEAR(sent_bytes(linear, forward_steps(linear), size), formula_forward_bytes(linear, size), 1e-6) << text;
        EXPECT_NEAR(sent_bytes(linear, backward_steps(linear), size), formula_backward_bytes(linear, size), 1e-6);
      }
    }
  }
}

// One MLP pair, M rows, forward: 2-D sends (q-1)/q^2 (5 M h + 8 h^2) elements per rank and 1-D 2 (P-1)/P M h; they are
// the same at M = 8 h, 1.6 h and 0.62 h for 4, 16 and 64 ranks. 3-D sends (q-1)/q^3 (10 M h + 8 h^2).
TEST(GridSteps, CrossOneDimensionWhereDerived) {
  constexpr std::int64_t kHidden = 4096;
  const auto pair = [](const char* grid, std::int64_t rows) {
    const GridLinear up{parse_grid(grid), rows, kHidden, 4 * kHidden};
    const GridLinear down{parse_grid(grid), rows, 4 * kHidden, kHidden, true};
    return formula_forward_bytes(up, 1) + formula_forward_bytes(down, 1);
  };
  const auto one = [](double ranks, double rows) { return 2 * (ranks - 1) / ranks * rows * kHidden; };
  EXPECT_DOUBLE_EQ(pair("2x2", 8 * kHidden), one(4, 8 * kHidden));
  EXPECT_NEAR(pair("4x4", 16 * kHidden / 10) / one(16, 1.6 * kHidden), 1, 0.001);
  EXPECT_NEAR(pair("8x8", 62 * kHidden / 100) / one(64, 0.62 * kHidden), 1, 0.01);
  EXPECT_LT(pair("4x4x4", kHidden), pair("8x8", kHidden));
  EXPECT_LT(pair("8x8", kHidden), one(64, kHidden));
  EXPECT_GT(pair("2x2", kHidden), one(4, kHidden));
}

}  // namespace
}  // namespace lockstep::workload
