// The layers that tp_linear_bench times: their sizes, how tensor-parallel ranks split them, and which part of the
// trainer's step each layer is (bench/step/layer_part.h), with its inputs and its results.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/step/layer_part.h"
#include "core/dtype.h"
#include "workload/grid_product.h"
#include "workload/parameters.h"

namespace lockstep::tp_linear {

using step_bench::Direction;
using Block = trainer::GptStage::Block;  // all but a core

struct Shape {
  std::int64_t batch = 4;     // b
  std::int64_t length = 128;  // s
  std::int64_t hidden = 256;  // h
  std::int64_t heads = 8;
  std::int64_t vocabulary = 8191;
  core::DType dtype = core::DType::f32;

  std::int64_t rows() const { return batch * length; }
  std::int64_t inner() const { return 4 * hidden; }
};

// A layer on one of the ranks that share it.
struct TpLayer {
  Block kind = Block::up;
  Shape shape = {};
  workload::TensorRank rank = {1, 0};
  bool sequence_parallel = false;
  int tiles = 1;                            // number of tiles of rows
  std::optional<workload::Grid> grid = {};  // grid of the ranks, if there is one
  bool biases = true;                       // attention and the MLP have them; the others have none
};

step_bench::LayerBlock block_of(const TpLayer& layer);
// Random values and ids, of which every rank makes its share: the same for every split.
step_bench::LayerInputs inputs_of(const TpLayer& layer);

// Calls its argument with (share_begin, whole_begin, count) for the runs of a share of a whole tensor.
using Runs = std::function<void(const std::function<void(std::int64_t, std::int64_t, std::int64_t)>&)>;
Runs runs_of(const workload::Parameter& whole, workload::TensorRank rank);

// A rank's share of a result of a forward and a backward.
struct Result {
  std::string name;
  std::vector<float> found;
  Runs runs;
  // The bound applies to each element, not to the largest one.
  bool elementwise = false;
};

// Between begin() and end() of the rank, which runs the layer: its output, the gradients of its input and weights.
std::vector<Result> results_of(const TpLayer& layer, step_bench::LayerRank& rank);

// Approximate bytes that the kernels of a forward and a backward read and write, which one rank holds all the time.
std::int64_t needed_bytes(const TpLayer& layer);

}  // namespace lockstep::tp_linear
