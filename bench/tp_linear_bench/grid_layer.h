// A linear layer, or the pair of an MLP, on a grid of ranks: the steps of workload/grid_product.h bound to tensors.
// Layers have no bias, as in Llama; between the two of a pair is a GELU, which each rank applies to its block.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "bench/tp_linear_bench/block.h"
#include "parallel/layers/layers.h"
#include "parallel/memory/memory.h"
#include "workload/grid_product.h"

namespace lockstep::tp_linear {

// The linear layers of a block: one, or the two of an MLP.
std::vector<workload::GridLinear> linears_of(BlockKind kind, const Shape& shape, const workload::Grid& grid);

// Bytes that a rank sends, by direction, by the formulas of the papers.
std::array<double, 2> grid_formula_bytes_of(BlockKind kind, const Shape& shape, const workload::Grid& grid);

// Approximate bytes that all ranks hold together.
std::int64_t grid_needed_bytes(BlockKind kind, const Shape& shape, const workload::Grid& grid);

struct GridSite {
  const Shape& shape;
  workload::Grid grid;
  int rank = 0;
  const parallel::Workspace& workspace;
  std::array<Exchanger*, workload::kNumGridAxes> exchangers = {};  // by axis; nullptr if the group has one rank
};

class GridLayer final : public TimedBlock {
 public:
  // The memory, the exchangers and the shape that the site refers to must outlive the layer.
  GridLayer(BlockKind kind, const GridSite& site);
  void reset() override;
  std::vector<Result> results() const override;

 private:
  // This rank's blocks of a matrix and of its gradient.
  struct Value {
    const char* name;  // name of the whole matrix; that of its gradient has the prefix d
    workload::GridLinear linear;
    workload::GridMatrix matrix;  // its blocks are split as this matrix of that layer
    bool is_given = false;        // the matrix is an input, not a result
    parallel::Tensor x = {};
    parallel::Tensor d = {};
  };
  // Buffers for the fetched operands of a product, or for its result before a reduction: two, so that one is in flight
  // while the other is used.
  struct Panels {
    std::array<parallel::Tensor, 2> tensors;
    std::array<int, 2> last_exchange = {kNothing, kNothing};  // the last exchange that fills or reads it
  };
  struct Linear {
    workload::GridLinear spec;
    std::array<Value*, workload::kNumGridMatrices> values;
    parallel::Tensor f32_sum = {};  // sum of y, if products add to it in another dtype
    std::array<Panels, workload::kNumGridMatrices> fetched = {}, partial = {};  // by matrix
  };
  using Steps = std::vector<workload::GridStep>;

  workload::Parameter whole(const Value& value, bool gradient) const;
  parallel::Tensor random(const Value& value, bool gradient) const;
  Value& add_value(const char* name, const workload::GridLinear& linear, workload::GridMatrix matrix, bool is_given);
  void add_linear(const workload::GridLinear& spec, Value& x, Value& w, Value& y);
  void make_panels(Linear& linear, const Steps& steps) const;
  void add_steps(Direction direction, Linear& linear, const Steps& steps);
  void add_exchange(Direction direction, Linear& linear, const workload::GridStep& step);
  void add_product(Direction direction, Linear& linear, const workload::GridStep& step, const Steps& steps);
  void add_gelu(Direction direction, Value& in, Value& out);
  void add_kernel(Direction direction, TaskKind kind, int after, std::function<void()> run);
  std::function<void()> forward_product(Linear& linear, const workload::GridStep& step, bool is_last);
  std::function<void()> gradient_product(Linear& linear, const workload::GridStep& step);
  // The operand of a product: the panel that a step has fetched, or the rank's own block.
  const parallel::Tensor& operand(const Linear& linear, workload::GridMatrix matrix, std::int32_t number,
                                  bool gradient) const;

  const GridSite site_;
  std::deque<Value> values_;
  std::deque<Linear> linears_;
  std::array<int, 2> last_kernel_ = {kNothing, kNothing};    // by direction
  std::array<int, 2> last_exchange_ = {kNothing, kNothing};  // likewise
};

}  // namespace lockstep::tp_linear
