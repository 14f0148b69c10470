#include "bench/tp_linear_bench/layer.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "core/random.h"
#include "parallel/layers/layers.h"
#include "parallel/parameters/store.h"
#include "workload/operations.h"

namespace lockstep::tp_linear {
namespace {

using workload::GridMatrix;
using workload::OperationKind;
using workload::Parameter;
using workload::Split;

workload::Model model_of(const TpLayer& layer) {
  const Shape& shape = layer.shape;
  workload::Model model;
  model.layers = 1;
  model.hidden = shape.hidden;
  const bool has_heads = layer.kind == Block::attention;  // others have sizes that fit all ranks
  const bool has_mlp = layer.kind == Block::up || layer.kind == Block::down || layer.kind == Block::mlp;
  model.heads = model.kv_heads = has_heads ? shape.heads : layer.rank.ranks;
  model.head_size = has_heads ? shape.hidden / shape.heads : 2;
  model.ffn_hidden = has_mlp ? shape.inner() : layer.rank.ranks;
  model.vocabulary = shape.vocabulary;
  model.sequence = model.positions = layer.grid ? 1 : shape.length;
  model.dropout = false;
  model.learned_positions = layer.kind != Block::embedding;  // they are added where nothing is sharded
  model.biases = layer.biases && layer.kind != Block::up && layer.kind != Block::down;
  return model;
}

// Rows within a layer are in the order of tiles (trainer/model/part_run.h): puts them into it, or back.
template <class T>
std::vector<T> reordered(const TpLayer& layer, const std::vector<T>& rows, bool into_tiles) {
  if (!layer.sequence_parallel || layer.tiles == 1) return rows;
  const std::int64_t ranks = layer.rank.ranks;
  const std::int64_t own = static_cast<std::int64_t>(rows.size()) / ranks / layer.tiles;  // elements per tile and rank
  std::vector<T> to(rows.size());
  for (std::int64_t t = 0; t < layer.tiles; ++t) {
    for (std::int64_t r = 0; r < ranks; ++r) {
      const std::int64_t in_tiles = (t * ranks + r) * own;
      const std::int64_t in_rows = (r * layer.tiles + t) * own;
      std::copy_n(rows.begin() + (into_tiles ? in_rows : in_tiles), own,
                  to.begin() + (into_tiles ? in_tiles : in_rows));
    }
  }
  return to;
}

// Random numbers in [0, below).
std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t below) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t drawn = core::hash64(step_bench::kLayerSeed, 0, i);
    ids[i] = static_cast<std::int32_t>(drawn % static_cast<std::uint64_t>(below));
  }
  return ids;
}

bool is_wide(const TpLayer& layer, bool is_output) {
  return layer.kind == (is_output ? Block::up : Block::down);
}

// The linear layer of a grid at the beginning of the block, or at its end.
workload::GridLinear linear_of(const TpLayer& layer, bool is_output) {
  const step_bench::LayerBlock block = block_of(layer);
  const bool is_down = layer.kind == Block::down || (layer.kind == Block::mlp && is_output);
  return grid_linear(block.model, block.layout, is_down ? OperationKind::down : OperationKind::up);
}

// A rank's block of a matrix of a layer on a grid, of `columns` columns.
Runs runs_of(const workload::GridLinear& linear, GridMatrix matrix, std::int64_t columns, int rank) {
  const workload::GridBlock block = block_of(linear, matrix, rank);
  return [block, columns](const auto& visit) {
    for (std::int64_t r = 0; r < block.rows; ++r) {
      visit(r * block.columns, (block.first_row + r) * columns + block.first_column, block.columns);
    }
  };
}

// Logits of a rank's words; the vocabulary is padded if the ranks do not divide it.
Result logits_of(const TpLayer& layer, const char* name) {
  const std::int64_t vocabulary = layer.shape.vocabulary;
  const std::int64_t per_rank = (vocabulary + layer.rank.ranks - 1) / layer.rank.ranks;
  const parallel::Words words = parallel::words_of(vocabulary, per_rank, layer.rank.index);
  const std::int64_t rows = layer.shape.rows();
  return {.name = name,
          .found = std::vector<float>(static_cast<std::size_t>(rows * per_rank)),
          .runs =
              [words, rows, vocabulary](const auto& visit) {
                for (std::int64_t r = 0; r < rows && words.valid > 0; ++r) {
                  visit(r * words.rows, r * vocabulary + words.first, words.valid);
                }
              },
          .elementwise = true};
}

// This rank's share of the rows before a layer, or after it, or of their gradient. Between layers a rank has all rows,
// or its share of the rows; within the pair of an MLP its columns of all rows. On a grid it has one of the blocks.
Result end_of(const TpLayer& layer, const char* name, bool is_output) {
  if (layer.kind == Block::loss) return logits_of(layer, name);
  const bool wide = is_wide(layer, is_output);
  const std::int64_t columns = wide ? layer.shape.inner() : layer.shape.hidden;
  Result end{.name = name, .found = {}, .runs = {}};
  if (layer.grid) {
    const workload::GridLinear linear = linear_of(layer, is_output);
    const GridMatrix matrix = is_output ? GridMatrix::y : GridMatrix::x;
    end.runs = runs_of(linear, matrix, columns, layer.rank.index);
    end.found.resize(static_cast<std::size_t>(block_of(linear, matrix, layer.rank.index).elems()));
    return end;
  }
  const Split split = wide ? Split::columns : layer.sequence_parallel ? Split::rows : Split::none;
  const Parameter whole{.name = name, .shape = {layer.shape.rows(), columns}, .split = split};
  end.runs = tp_linear::runs_of(whole, layer.rank);
  end.found.resize(static_cast<std::size_t>(workload::elems_of_share(whole, layer.rank)));
  return end;
}

}  // namespace

step_bench::LayerBlock block_of(const TpLayer& layer) {
  step_bench::LayerBlock block;
  block.model = model_of(layer);
  block.layout.tp = layer.rank.ranks;
  block.layout.sequence_parallel = layer.sequence_parallel;
  block.layout.microbatch_size = layer.grid ? layer.shape.rows() : layer.shape.batch;  // a grid splits sequences only
  if (layer.grid) block.layout.grid = *layer.grid;
  block.layout.compute = layer.shape.dtype;
  block.block = layer.kind;
  block.row_tiles = layer.tiles;
  return block;
}

Runs runs_of(const Parameter& whole, workload::TensorRank rank) {
  return [whole, rank](const auto& visit) { workload::for_each_run(whole, rank, visit); };
}

step_bench::LayerInputs inputs_of(const TpLayer& layer) {
  // Normal values; padding is zero.
  const auto random = [&](const char* name, bool is_output) {
    Result end = end_of(layer, name, is_output);
    end.runs([&](std::int64_t to, std::int64_t from, std::int64_t count) {
      const auto share = std::span(end.found).subspan(static_cast<std::size_t>(to), static_cast<std::size_t>(count));
      parallel::fill_initial_values({.name = name, .shape = {}, .deviation = 1}, step_bench::kLayerSeed, from, share);
    });
    return is_wide(layer, is_output) ? reordered(layer, end.found, true) : end.found;
  };
  step_bench::LayerInputs inputs;
  if (layer.kind != Block::embedding) inputs.x = random("x", false);
  if (layer.kind != Block::loss) inputs.dy = random("dy", true);
  if (layer.kind == Block::embedding || layer.kind == Block::loss) {
    inputs.ids = reordered(layer, random_ids(layer.shape.rows(), layer.shape.vocabulary), true);
  }
  return inputs;
}

std::vector<Result> results_of(const TpLayer& layer, step_bench::LayerRank& rank) {
  std::vector<Result> results;
  const auto add = [&](const char* name, bool is_output, std::vector<float> found) {
    results.push_back(end_of(layer, name, is_output));
    results.back().found = is_wide(layer, is_output) ? reordered(layer, found, false) : std::move(found);
  };
  if (layer.kind != Block::embedding) add("dx", false, rank.dx());
  if (layer.kind == Block::loss) {
    const Parameter losses{.name = "losses", .shape = {layer.shape.rows()}};
    results.push_back({losses.name, rank.y(), runs_of(losses, {})});
    return results;
  }
  add("y", true, rank.y());
  const std::vector<Parameter> parameters = step_bench::parameters_of(block_of(layer), layer.rank.index);
  const workload::TensorRank place{layer.rank.ranks, layer.rank.index, layer.grid.value_or(workload::Grid{})};
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const Parameter& parameter = parameters[p];
    if (!step_bench::is_used(parameter)) continue;
    results.push_back({parameter.name, rank.gradient(p), runs_of(parameter, place)});
  }
  return results;
}

std::int64_t needed_bytes(const TpLayer& layer) {
  const step_bench::LayerBlock block = block_of(layer);
  const std::vector<OperationKind> kinds = step_bench::kinds_of(layer.kind);
  const workload::StageSlice stage = step_bench::stage_of(layer.kind);
  const auto operations = stage.embedding ? workload::embedding_operations(block.model, block.layout)
                          : stage.head    ? workload::head_operations(block.model, block.layout)
                                          : workload::layer_operations(block.model, block.layout);
  double bytes = 0;
  for (const workload::Operation& op : operations) {
    if (std::find(kinds.begin(), kinds.end(), op.kind) == kinds.end()) continue;
    for (const auto* calls : {&op.forward, &op.input_gradient, &op.weight_gradient}) {
      for (const workload::KernelCall& call : *calls) bytes += call.count * workload::cost_of(call).bytes;
    }
  }
  return std::llround(bytes);
}

}  // namespace lockstep::tp_linear
