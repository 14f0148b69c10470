#include "workload/grid_operations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"
#include "schedules/step/count.h"
#include "workload/memory.h"
#include "workload/parameters.h"
#include "workload/recipe.h"

namespace lockstep::workload {
namespace {

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

double members_of_axis(const Grid& grid, GroupKind kind) {
  return kind == GroupKind::tensor_row      ? members_along(grid, GridAxis::along_row)
         : kind == GroupKind::tensor_column ? members_along(grid, GridAxis::along_column)
                                            : members_along(grid, GridAxis::along_depth);
}

double sent(const Grid& grid, const Exchange& exchange) {
  return schedules::wire_bytes(exchange.comm, std::llround(exchange.bytes),
                               std::llround(members_of_axis(grid, exchange.group)));
}

// A layer sends what the papers' formulas say its four products do, and a number or two of each row for its norms.
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
    std::pair<int, int> found;  // exchanges of the grid: all, and those beside a product
    for (const schedules::Piece& piece : pieces) {
      if (piece_named(piece.what).kind != OperationKind::exchange_grid) continue;
      ++found.first;
      found.second += piece.beside_next ? 1 : 0;
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
