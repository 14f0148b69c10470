// The lists of a linear layer on a grid: run with numbers, and counted against the papers' formulas.
#include "workload/grid_product.h"

#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "schedules/step/breakdown.h"
#include "workload/build_step.h"
#include "workload/memory.h"
#include "workload/operations.h"
#include "workload/parameters.h"

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

TEST(GridGroups, CoordinatesAlongTheAxesNumberTheRanks) {
  for (const std::string& text : kGrids) {
    const Grid grid = parse_grid(text);
    for (std::int32_t rank = 0; rank < grid.ranks(); ++rank) {
      std::int32_t number = 0;
      for (const schedules::GroupKind axis : kGridGroups) {
        const std::int32_t at = place_of(grid, rank).along(axis);
        EXPECT_LT(at, members_along(grid, axis));
        number += at * stride_along(grid, axis);
      }
      EXPECT_EQ(number, rank);
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

// Transposed, the blocks of w lie like those of x, whose ranks have the same columns.
TEST(GridBlocks, OfATransposedMatrixHaveTheColumnsOfTheInput) {
  for (const char* text : {"2x2", "3x3", "2.5d:3x3x2"}) {
    GridLinear linear = linear_on(text);
    linear.transposed = true;
    for (std::int32_t rank = 0; rank < linear.grid.ranks(); ++rank) {
      const GridBlock w = block_of(linear, GridMatrix::w, rank);
      EXPECT_EQ(w.first_column, block_of(linear, GridMatrix::x, rank).first_column) << text;
      EXPECT_EQ(w.first_row, place_of(linear.grid, rank).row * w.rows) << text;
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

struct Elems {
  double x, w, y;
};
Elems elems_of(const GridLinear& linear) {
  const auto times = [](std::int64_t a, std::int64_t b) { return static_cast<double>(a) * static_cast<double>(b); };
  return {times(linear.rows, linear.inputs), times(linear.inputs, linear.outputs), times(linear.rows, linear.outputs)};
}

// Bytes that a rank sends with algorithms of minimal traffic, mean over ranks, by the formulas of the papers: elements
// of `size` bytes, gradients of weights in f32.
double formula_forward_bytes(const GridLinear& linear, std::int64_t size) {
  const auto [x, w, y] = elems_of(linear);
  const double q = linear.grid.side;
  const double bytes = static_cast<double>(size);
  if (linear.grid.form == GridForm::three) return (q - 1) / (q * q * q) * (x + w + y) * bytes;
  return (q - 1) / (q * q) * (x / linear.grid.depth + w) * bytes;
}

double formula_backward_bytes(const GridLinear& linear, std::int64_t size) {
  constexpr double kGradient = 4;  // bytes
  const auto [x, w, y] = elems_of(linear);
  const double q = linear.grid.side;
  const double d = linear.grid.depth;
  const double bytes = static_cast<double>(size);
  if (linear.grid.form == GridForm::three) return (q - 1) / (q * q * q) * ((2 * x + w + y) * bytes + w * kGradient);
  const double over_depth = 2 * (d - 1) / d * w / (q * q) * kGradient;
  return (q - 1) / (q * q) * ((2 * x / d + w) * bytes + w * kGradient) + over_depth;
}

double sent_bytes(const GridLinear& linear, const std::vector<GridStep>& steps, double size) {
  double sent = 0;
  for (const GridStep& step : steps) {
    if (!step.is_exchange()) continue;
    const bool is_weight_gradient = step.comm != schedules::Comm::broadcast &&
                                    step.comm != schedules::Comm::all_gather &&
                                    step.product == GridProduct::weight_gradient;
    const double n = members_along(linear.grid, step.axis);
    // Size of the whole: the block that is broadcast or reduced; the panel of the others.
    const bool is_panel = step.comm == schedules::Comm::all_gather || step.comm == schedules::Comm::reduce_scatter;
    const GridBlock whole = is_panel ? panel_of(linear, step.matrix) : block_of(linear, step.matrix, 0);
    const double share = static_cast<double>(whole.elems()) * (is_weight_gradient ? 4 : size) * (n - 1) / n;
    sent += step.comm == schedules::Comm::all_reduce ? 2 * share : share;
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

using schedules::Comm;
using schedules::GroupKind;

// Sizes that sides of 2 and 3 divide, also twice.
Model small(const std::string& more = "") {
  return parse_model("layers=2,hidden=72,heads=36,kv_heads=18,ffn_hidden=144,vocabulary=500,sequence=8,dropout=no" +
                     more);
}
Layout layout_of(const std::string& grid, const std::string& more = "") {
  return parse_layout("tp_grid=" + grid + ",microbatch=36,batch=36" + more);
}
const std::vector<std::string> kGridsOfModels{"2x2", "3x3", "2.5d:2x2x2", "2.5d:3x3x2", "2x2x2", "3x3x3"};

std::vector<GridLinear> linears_of(const Model& model, const Grid& grid) {
  const std::int64_t rows = 36 * model.sequence;
  const std::int64_t qkv = (model.heads + 2 * model.kv_heads) * model.head_size;
  return {{grid, rows, model.hidden, qkv, false},
          {grid, rows, model.heads * model.head_size, model.hidden, true},
          {grid, rows, model.hidden, model.ffn_hidden * (model.gated ? 2 : 1), false},
          {grid, rows, model.ffn_hidden, model.hidden, true}};
}

double sent(const Grid& grid, const Exchange& exchange) {
  return schedules::wire_bytes(exchange.comm, std::llround(exchange.bytes), members_along(grid, exchange.group));
}

// A layer sends the bytes of the papers' formulas for its four products, and a number or two per row for its norms.
TEST(GridOperations, SendWhatThePapersSay) {
  for (const std::string& text : kGridsOfModels) {
    for (const char* more : {"", ",gated=yes,norm=rms,biases=no"}) {
      const Model model = small(more);
      const Layout layout = layout_of(text);
      double forward = 0;
      double backward = 0;
      for (const GridLinear& linear : linears_of(model, layout.grid)) {
        forward += formula_forward_bytes(linear, 2);
        backward += formula_backward_bytes(linear, 2);
      }
      for (const Operation& op : layer_operations(model, layout)) {
        if (op.kind == OperationKind::exchange_norm) {
          EXPECT_EQ(op.forward_exchange.bytes, (model.norm == Norm::layer ? 8.0 : 4.0) * 36 * 8 /
                                                   static_cast<double>(divisors_of(layout.grid).rows));
          continue;
        }
        forward -= sent(layout.grid, op.forward_exchange);
        backward -= sent(layout.grid, op.backward_exchange);
      }
      EXPECT_NEAR(forward, 0, 1e-6) << text << more;
      EXPECT_NEAR(backward, 0, 1e-6) << text << more;
    }
  }
}

double flops_of(const std::vector<KernelCall>& calls) {
  double flops = 0;
  for (const KernelCall& call : calls) flops += call.count * matrix_flops_of(call);
  return flops;
}

// Together the ranks compute what one alone does: no product and no attention is done twice.
TEST(GridOperations, ComputeWhatOneRankDoes) {
  for (const std::string& text : kGridsOfModels) {
    for (const char* more : {"", ",gated=yes,norm=rms,biases=no", ",dropout=yes"}) {
      const Model model =
          parse_model("layers=2,hidden=72,heads=36,kv_heads=18,ffn_hidden=144,vocabulary=504,sequence=8" +
                      std::string(std::string(more) == ",dropout=yes" ? "" : ",dropout=no") + more);
      const Layout layout = layout_of(text);
      const Layout one = parse_layout("microbatch=36,batch=36");
      const auto all = [&](const Layout& of) {
        double forward = 0;
        double backward = 0;
        for (const auto& ops : {layer_operations(model, of), head_operations(model, of)}) {
          for (const Operation& op : ops) {
            forward += flops_of(op.forward);
            backward += flops_of(op.input_gradient) + flops_of(op.weight_gradient);
          }
        }
        return std::pair(forward, backward);
      };
      const double ranks = layout.grid.ranks();
      EXPECT_NEAR(all(layout).first * ranks / all(one).first, 1, 1e-9) << text << more;
      EXPECT_NEAR(all(layout).second * ranks / all(one).second, 1, 1e-9) << text << more;
    }
  }
}

// Every element of every parameter is counted by one rank, those with the same part of it have terms of its gradient or
// the same, and what ranks keep has one size. A vocabulary of 500 words is padded.
TEST(GridParameters, AreSharedOutOnce) {
  for (const std::string& text : kGridsOfModels) {
    for (const char* more : {"", ",gated=yes,norm=rms,biases=no,tied_embeddings=no"}) {
      const Model model = small(more);
      const Layout layout = layout_of(text);
      const StagePlan plan = plan_of(model, layout, slice_of(model, layout, 1, 0));
      for (std::size_t p = 0; p < plan.parameters.size(); ++p) {
        const Parameter& parameter = plan.parameters[p];
        std::vector<int> counted(static_cast<std::size_t>(parameter.elems()));
        std::vector<int> copies(counted.size());
        for (std::int32_t t = 0; t < layout.tp; ++t) {
          const TensorRank place{layout.tp, t, layout.grid};
          EXPECT_EQ(elems_of_share(parameter, place), elems_of_rank(parameter, layout)) << parameter.name;
          std::int64_t next = 0;
          for_each_run(parameter, place, [&](std::int64_t share, std::int64_t whole, std::int64_t count) {
            EXPECT_EQ(share, next);  // padding is at the end
            next = share + count;
            for (std::int64_t i = whole; i < whole + count; ++i) {
              ++copies[static_cast<std::size_t>(i)];
              counted[static_cast<std::size_t>(i)] += counts_in_norm(plan, p, layout, {.tp = t}) ? 1 : 0;
            }
          });
          EXPECT_LE(next, elems_of_rank(parameter, layout));
        }
        std::int32_t ranks =
            layout.grid.form == GridForm::two_half && parameter.decays && parameter.name != "wpe.weight"
                ? layout.grid.depth
                : 1;
        for (const GroupKind kind : kTensorGroups) {
          if (is_summed_over(kind, plan, p, layout)) ranks *= members_along(layout.grid, kind);
        }
        for (const int times : counted) EXPECT_EQ(times, 1) << text << " " << parameter.name;
        for (const int times : copies) EXPECT_EQ(times, ranks) << text << " " << parameter.name;
      }
    }
  }
}

// A panel of queries, keys and values is of whole heads of each.
TEST(GridParameters, APanelHasItsHeadsOfQueriesKeysAndValues) {
  const Model model = small();
  const Parameter qkv = parameters_of(model, layout_of("3x3x3"), {.layers = 1})[LayerIndices(model).qkv.weight];
  std::vector<std::int64_t> rows;  // rows of the panel that ranks of column 1 gather
  for (std::int32_t row = 0; row < 3; ++row) {
    for_each_run(qkv, {27, 3 * row + 1, parse_grid("3x3x3")},
                 [&](std::int64_t, std::int64_t whole, std::int64_t) { rows.push_back(whole / model.hidden); });
  }
  std::vector<std::int64_t> expected;
  for (const auto& [first, all] : {std::pair{0, 72}, {72, 36}, {108, 36}}) {
    for (int r = 0; r < all / 3; ++r) expected.push_back(first + all / 3 + r);
  }
  EXPECT_EQ(rows, expected);
}

// Nothing of a layer is on two ranks but the weights of 2.5-D's squares: what each keeps is its share.
TEST(GridOperations, KeepAShareOfWhatOneRankKeeps) {
  for (const std::string& text : kGridsOfModels) {
    const Model model = small(",gated=yes,norm=rms,biases=no");
    const Layout layout = layout_of(text);
    const Layout one = parse_layout("microbatch=36,batch=36");
    const double ranks = layout.grid.ranks();
    // Each rank has numbers of the norms' rows for itself.
    const double rows = 36 * 8 / static_cast<double>(divisors_of(layout.grid).rows);
    const double whole = kept_bytes(layer_operations(model, one)) - 2 * 4 * 36 * 8;
    EXPECT_NEAR(kept_bytes(layer_operations(model, layout)) - 2 * 4 * rows, whole / ranks, 1e-6) << text;
    EXPECT_EQ(input_bytes(model, layout) * ranks, input_bytes(model, one));
    const StageSlice layer{.layers = 1};
    const double parts = weight_parts(layout.grid);
    const double norms = 2.0 * 72;
    EXPECT_NEAR(count_elems(model, layout, layer).whole,
                (count_elems(model, one, layer).whole - norms) / parts + norms / layout.grid.side, 1e-6);
  }
}

// Fetches for the next panel, and sums of the previous one, overlap with a product.
TEST(GridOperations, FetchOnePanelAhead) {
  const auto recipe = recipe_of(small(), layout_of("3x3"), {.layers = 1});
  const auto count = [](const std::vector<schedules::Piece>& pieces) {
    std::pair<int, int> found;  // exchanges of the grid: all, and those that overlap with a product
    for (const schedules::Piece& piece : pieces) {
      const bool is_norm = piece_named(piece.what).kind == OperationKind::exchange_norm;
      if (piece.comm == schedules::Comm::none || is_norm) continue;
      ++found.first;
      found.second += piece.overlaps_next ? 1 : 0;
    }
    return found;
  };
  // Each of four products: in the forward 3 x 2 panels; for each gradient 3 panels in and 3 sums out. All of them
  // overlap except the first panels and the last sums; those of the input gradient overlap with the weight gradient.
  EXPECT_EQ(count(recipe.forward), (std::pair{4 * 6, 4 * 4}));
  EXPECT_EQ(count(recipe.backward), (std::pair{4 * 12, 4 * (2 + 3 + 2 + 2)}));
  EXPECT_EQ(count(recipe.input_gradient), (std::pair{4 * 6, 4 * 4}));
  EXPECT_EQ(count(recipe.weight_gradient), (std::pair{4 * 6, 4 * 4}));
  EXPECT_EQ(count(recipe_of(small(), layout_of("3x3", ",overlap_tp=no"), {.layers = 1}).backward).second, 0);
}

TEST(GridOperations, SayWhatDoesNotFit) {
  const auto reason = [](const std::string& model, const std::string& layout) {
    return why_invalid(parse_model("layers=2,hidden=64,heads=8,vocabulary=500,sequence=8,dropout=no" + model),
                       parse_layout(layout));
  };
  EXPECT_EQ(reason("", "tp_grid=2x2,microbatch=2"), "");
  EXPECT_EQ(reason("", "tp_grid=2x2,tp=4,microbatch=2"), "");
  EXPECT_EQ(reason("", "tp_grid=2x2,tp=8,microbatch=2"), "tp_grid is 2x2, and tp is 8; allowed: tp=4, or no tp");
  EXPECT_EQ(reason("", "tp_grid=2x2x2,microbatch=2"), "tp_grid is 2x2x2, and microbatch is 2; allowed: multiples of 4");
  EXPECT_EQ(reason("", "tp_grid=3x3,microbatch=3"), "tp_grid is 3x3, and heads is 8; allowed: multiples of 3");
  EXPECT_EQ(reason("", "tp_grid=2x2,microbatch=2,sp=yes"),
            "tp_grid is 2x2, with sp=yes; allowed: sp=no, as a grid shares rows out by itself");
  EXPECT_EQ(reason(",experts=4", "tp_grid=2x2,microbatch=2"),
            "tp_grid is 2x2, with experts; allowed: a model without experts");
  EXPECT_THROW(parse_layout("tp_grid=2x3"), core::Error);
}

}  // namespace
}  // namespace lockstep::workload
