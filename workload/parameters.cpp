#include "workload/parameters.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "core/error.h"
#include "workload/layout.h"

namespace lockstep::workload {
namespace {

// A parameter as [outer][blocks of given lengths][inner]; a rank has a share of each block.
struct Axes {
  std::int64_t outer = 1;
  std::vector<std::int64_t> lengths = {};
  std::vector<std::int64_t> shares = {};  // shares of the lengths; the last ranks may have less
  std::int64_t inner = 1;
};

std::int64_t product(const std::vector<std::int64_t>& shape, std::size_t first, std::size_t last) {
  const auto begin = shape.begin();
  return std::accumulate(begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(last),
                         std::int64_t{1}, std::multiplies<>());
}

std::size_t split_axis(const Parameter& parameter) {
  const std::size_t axis = parameter.split == Split::columns ? 1 : 0;
  LOCKSTEP_CHECK(axis < parameter.shape.size(), parameter.name + " has no axis to split");
  return axis;
}

// The lengths that ranks split separately.
std::span<const std::int64_t> blocks_of(const Parameter& parameter) {
  if (parameter.blocks.empty()) return std::span(parameter.shape).subspan(split_axis(parameter), 1);
  return parameter.blocks;
}

// Length of one rank's share of all blocks of the split axis.
std::int64_t length_of_share(const Parameter& parameter, std::int32_t ranks) {
  const bool may_be_padded = parameter.split == Split::rows && parameter.blocks.empty();
  bool divides = true;
  std::int64_t whole = 0;
  std::int64_t share = 0;
  for (const std::int64_t length : blocks_of(parameter)) {
    whole += length;
    share += (length + ranks - 1) / ranks;
    divides = divides && (may_be_padded || length % ranks == 0);
  }
  LOCKSTEP_CHECK(divides && whole == parameter.shape[split_axis(parameter)],
                 parameter.name + ": " + std::to_string(ranks) + " ranks do not divide what they share");
  return share;
}

Axes axes_of(const Parameter& parameter, std::int32_t ranks) {
  const std::vector<std::int64_t>& shape = parameter.shape;
  if (parameter.split == Split::none) return {.lengths = {parameter.elems()}, .shares = {parameter.elems()}};
  length_of_share(parameter, ranks);  // checks
  const std::size_t axis = split_axis(parameter);
  const std::span<const std::int64_t> blocks = blocks_of(parameter);
  Axes axes{.outer = product(shape, 0, axis),
            .lengths = {blocks.begin(), blocks.end()},
            .inner = product(shape, axis + 1, shape.size())};
  for (const std::int64_t length : blocks) axes.shares.push_back((length + ranks - 1) / ranks);
  return axes;
}

struct ElementRun {
  std::int64_t share_begin = 0;
  std::int64_t whole_begin = 0;
  std::int64_t count = 0;

  bool goes_on_in(const ElementRun& next) const {
    return share_begin + count == next.share_begin && whole_begin + count == next.whole_begin;
  }
};

}  // namespace

std::int64_t Parameter::elems() const {
  return product(shape, 0, shape.size());
}

std::vector<std::int64_t> shape_of_share(const Parameter& parameter, std::int32_t tensor_ranks) {
  std::vector<std::int64_t> shape = parameter.shape;
  if (parameter.split != Split::none) shape[split_axis(parameter)] = length_of_share(parameter, tensor_ranks);
  return shape;
}

namespace {

using VisitRun = std::function<void(std::int64_t, std::int64_t, std::int64_t)>;

// ---- shares on a grid

bool is_of_columns(const Parameter& parameter) {
  return parameter.shape.size() == 1 || parameter.split == Split::none;
}

// The axis that splits the columns to which a parameter belongs: those of a first matrix's output, or those between
// layers.
schedules::GroupKind column_axis(const Parameter& parameter, const Grid& grid) {
  const bool is_of_output = parameter.split == Split::rows;
  return axis_of_columns({.grid = grid}, is_of_output ? GridMatrix::y : GridMatrix::x);
}

// As one of `side` ranks has it that split its columns.
Parameter split_by_columns(Parameter parameter) {
  parameter.split = parameter.shape.size() == 1 ? Split::rows : Split::columns;
  return parameter;
}

bool has_copies_along(schedules::GroupKind axis, const Parameter& parameter, const Grid& grid) {
  if (is_of_columns(parameter)) return axis != column_axis(parameter, grid);
  return grid.form == GridForm::two_half && axis == schedules::GroupKind::tensor_depth;
}

// Words are padded, so that all ranks have the same number.
GridLinear linear_of(const Parameter& matrix, const Grid& grid) {
  const std::int64_t parts = matrix.words ? divisors_of(grid).outputs : 1;
  return {.grid = grid,
          .inputs = matrix.shape[1],
          .outputs = (matrix.shape[0] + parts - 1) / parts * parts,
          .swapped = matrix.split == Split::columns,
          .transposed = matrix.words && grid.form != GridForm::three};
}

// A panel of `side` has its part of each of the parameter's blocks of rows, one after the other.
void for_each_run_on_grid(const Parameter& parameter, const TensorRank& place, const VisitRun& visit) {
  const Grid& grid = place.grid;
  if (is_of_columns(parameter)) {
    const std::int32_t index = place_of(grid, place.index).along(column_axis(parameter, grid));
    return for_each_run(split_by_columns(parameter), {grid.side, index}, visit);
  }
  const GridLinear linear = linear_of(parameter, grid);
  const GridBlock block = block_of(linear, GridMatrix::w, place.index);
  const std::int64_t panel = panel_of(linear, GridMatrix::w).rows;
  const std::int64_t first = block.first_row % panel;
  const Parameter rows{
      .name = parameter.name, .shape = {linear.outputs}, .split = Split::rows, .blocks = parameter.blocks};
  const TensorRank owner{grid.side, static_cast<std::int32_t>(block.first_row / panel)};
  for_each_run(rows, owner, [&](std::int64_t in_panel, std::int64_t whole, std::int64_t count) {
    const FlatRange own = common_of({in_panel, in_panel + count}, {first, first + block.rows});
    for (std::int64_t row = own.begin; row < own.end; ++row) {
      const std::int64_t whole_row = whole + row - in_panel;
      if (whole_row >= parameter.shape[0]) return;  // padding
      visit((row - first) * block.columns, whole_row * linear.inputs + block.first_column, block.columns);
    }
  });
}

}  // namespace

std::int64_t elems_of_share(const Parameter& parameter, const TensorRank& place) {
  if (place.grid.side > 1) {
    if (is_of_columns(parameter)) return elems_of_share(split_by_columns(parameter), {place.grid.side});
    return block_of(linear_of(parameter, place.grid), GridMatrix::w, place.index).elems();
  }
  if (parameter.split == Split::none) return parameter.elems();
  return parameter.elems() / parameter.shape[split_axis(parameter)] * length_of_share(parameter, place.ranks);
}

void for_each_run(const Parameter& parameter, const TensorRank& place, const VisitRun& visit) {
  if (place.grid.side > 1) return for_each_run_on_grid(parameter, place, visit);
  const bool whole = parameter.split == Split::none;
  const Axes axes = axes_of(parameter, whole ? 1 : place.ranks);
  ElementRun run;
  ElementRun next;  // its beginnings; a rank's padding is only in the share
  for (std::int64_t outer = 0; outer < axes.outer; ++outer) {
    for (std::size_t block = 0; block < axes.lengths.size(); ++block) {
      const std::int64_t length = axes.lengths[block];
      const std::int64_t share = axes.shares[block];
      const std::int64_t first = whole ? 0 : place.index * share;
      const std::int64_t count = std::clamp<std::int64_t>(length - first, 0, share) * axes.inner;
      const ElementRun here{next.share_begin, next.whole_begin + first * axes.inner, count};
      next.share_begin += share * axes.inner;
      next.whole_begin += length * axes.inner;
      if (run.goes_on_in(here)) {
        run.count += count;
        continue;
      }
      if (run.count > 0) visit(run.share_begin, run.whole_begin, run.count);
      run = here;
    }
  }
  if (run.count > 0) visit(run.share_begin, run.whole_begin, run.count);
}

namespace {

// As in openai/gpt-2, src/model.py: 0.02 for matrices and words, 0.01 for positions. Projections into the residual
// stream are scaled by one over the root of its number of additions, two per layer (Radford et al. 2019, section 2.3).
constexpr float kDeviation = 0.02F;
constexpr float kPositionDeviation = 0.01F;
constexpr const char* kWordsName = "wte.weight";

float residual_deviation(const Model& model) {
  return kDeviation / std::sqrt(2 * static_cast<float>(model.layers));
}

// Writes the parameters of one part.
class PartWriter {
 public:
  PartWriter(const Model& model, std::vector<Parameter>& to, std::int32_t part, std::string prefix = "")
      : model_(model), to_(to), part_(part), prefix_(std::move(prefix)) {}

  void matrix(const std::string& name, std::int64_t outputs, std::int64_t inputs, Split split, float deviation,
              std::vector<std::int64_t> blocks = {}) {
    put({.name = prefix_ + name,
         .shape = {outputs, inputs},
         .split = split,
         .blocks = std::move(blocks),
         .deviation = deviation,
         .decays = true});
  }
  void norm(const std::string& name) {
    put({.name = prefix_ + name + ".weight", .shape = {model_.hidden}, .fill = 1});
    if (model_.norm == Norm::layer) put({.name = prefix_ + name + ".bias", .shape = {model_.hidden}});
  }
  // The bias of a column-parallel layer is split like its outputs; a row-parallel layer's is whole.
  void linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, Split split, float deviation,
              std::vector<std::int64_t> blocks = {}) {
    matrix(name + ".weight", outputs, inputs, split, deviation, blocks);
    if (!model_.biases) return;
    Parameter bias{.name = prefix_ + name + ".bias", .shape = {outputs}};
    if (split == Split::rows) {
      bias.split = Split::rows;
      bias.blocks = blocks;
    }
    put(std::move(bias));
  }
  void experts() { expert_ = true; }
  // From now on names that begin with `name` are drawn like those that begin with `as`.
  void draw_as(const std::string& name, const std::string& as) {
    drawn_name_ = prefix_ + name;
    drawn_as_ = prefix_ + as;
  }

 private:
  void put(Parameter parameter) {
    parameter.part = part_;
    parameter.expert = expert_;
    if (!drawn_name_.empty() && parameter.name.starts_with(drawn_name_)) {
      parameter.drawn_as = drawn_as_ + parameter.name.substr(drawn_name_.size());
    }
    to_.push_back(std::move(parameter));
  }

  const Model& model_;
  std::vector<Parameter>& to_;
  std::int32_t part_;
  std::string prefix_;
  bool expert_ = false;
  std::string drawn_name_;
  std::string drawn_as_;
};

void add_words(const Model& model, std::int32_t part, const char* name, std::vector<Parameter>& to) {
  PartWriter(model, to, part).matrix(name, model.vocabulary, model.hidden, Split::rows, kDeviation);
  to.back().words = true;
}

void add_mlp(const Model& model, PartWriter& writer, const std::string& prefix, std::int64_t width) {
  const std::int64_t up = width * (model.gated ? 2 : 1);
  std::vector<std::int64_t> halves;  // gate and up
  if (model.gated) halves = {width, width};
  writer.linear(prefix + "c_fc", up, model.hidden, Split::rows, kDeviation, halves);
  writer.linear(prefix + "c_proj", model.hidden, width, Split::columns, residual_deviation(model));
}

// The tile of a linear layer whose parameters were written as `whole`: the bias of the second matrix is in the first
// tile.
Parameter tile_of(const Parameter& whole, TensorRank tile) {
  Parameter made = whole;
  const std::string mlp = "mlp.";
  made.name.insert(made.name.find(mlp) + mlp.size(), "tiles." + std::to_string(tile.index) + ".");
  made.tile_of = std::make_shared<const Parameter>(whole);
  made.tile = tile;
  if (whole.split == Split::none) return made;
  made.shape = shape_of_share(whole, tile.ranks);
  for (std::int64_t& block : made.blocks) block /= tile.ranks;
  return made;
}

void add_tiled_mlp(const Model& model, std::int32_t tiles, std::int64_t layer, std::int32_t part,
                   std::vector<Parameter>& to) {
  std::vector<Parameter> whole;
  PartWriter writer(model, whole, part, "h." + std::to_string(layer) + ".");
  add_mlp(model, writer, "mlp.", model.ffn_hidden);
  for (std::int32_t tile = 0; tile < tiles; ++tile) {
    for (const Parameter& parameter : whole) {
      if (parameter.split != Split::none || tile == 0) to.push_back(tile_of(parameter, {tiles, tile}));
    }
  }
}

void add_layer(const Model& model, const Layout& layout, std::int64_t layer, std::int32_t part,
               std::int32_t expert_rank, std::vector<Parameter>& to) {
  const std::int64_t queries = model.heads * model.head_size;
  const std::int64_t keys = model.kv_heads * model.head_size;
  PartWriter writer(model, to, part, "h." + std::to_string(layer) + ".");
  writer.norm("ln_1");
  writer.linear("attn.c_attn", queries + 2 * keys, model.hidden, Split::rows, kDeviation, {queries, keys, keys});
  writer.linear("attn.c_proj", model.hidden, queries, Split::columns, residual_deviation(model));
  writer.norm("ln_2");
  if (layout.mlp_tiles > 1) return add_tiled_mlp(model, layout.mlp_tiles, layer, part, to);
  if (model.experts == 0) return add_mlp(model, writer, "mlp.", model.ffn_hidden);
  writer.matrix("mlp.router.weight", model.experts, model.hidden, Split::none, kDeviation);
  if (model.shared_hidden > 0) add_mlp(model, writer, "mlp.shared.", model.shared_hidden);
  writer.experts();
  const std::int64_t experts = model.experts / layout.ep;
  for (std::int64_t e = expert_rank * experts; e < (expert_rank + 1) * experts; ++e) {
    const std::string name = "mlp.experts." + std::to_string(e) + ".";
    if (e == 0) writer.draw_as(name, "mlp.");
    add_mlp(model, writer, name, model.ffn_hidden);
  }
}

}  // namespace

std::vector<Parameter> parameters_of(const Model& model, const Layout& layout, const StageSlice& slice,
                                     std::int32_t expert_rank) {
  std::vector<Parameter> all;
  constexpr std::size_t kEnds = 4;  // parameters of the embedding and the head
  all.reserve(kEnds + static_cast<std::size_t>(slice.layers) * LayerIndices(model, layout.ep, layout.mlp_tiles).count);
  if (slice.embedding) {
    add_words(model, 0, kWordsName, all);
    if (model.learned_positions) {
      PartWriter(model, all, 0).matrix("wpe.weight", model.positions, model.hidden, Split::none, kPositionDeviation);
    }
  }
  for (std::int64_t i = 0; i < slice.layers; ++i) {
    const std::int64_t layer = slice.first_layer + i;
    add_layer(model, layout, layer, slice.part_of_layer(layer), expert_rank, all);
  }
  if (slice.head) {
    const std::int32_t part = slice.num_parts() - 1;
    PartWriter(model, all, part).norm("ln_f");
    if (!model.tied_embeddings) add_words(model, part, "lm_head.weight", all);
    if (model.tied_embeddings && !slice.embedding) add_words(model, part, kWordsName, all);
  }
  return all;
}

namespace {

WeightIndex norm_at(const Model& model, std::size_t place) {
  return {place, model.norm == Norm::layer};
}

}  // namespace

LayerIndices::LayerIndices(const Model& model, std::int32_t expert_ranks, std::int32_t tiles) {
  norm1 = norm_at(model, 0);
  qkv = {norm1.end(), model.biases};
  projection = {qkv.end(), model.biases};
  norm2 = norm_at(model, projection.end());
  if (model.experts > 0) router = {norm2.end(), false};
  count = model.experts > 0 ? router.end() : norm2.end();
  if (model.experts == 0 || model.shared_hidden > 0) {
    for (std::int32_t tile = 0; tile < tiles; ++tile) {
      tiles_up.push_back({count, model.biases});
      tiles_down.push_back({tiles_up.back().end(), model.biases && tile == 0});
      count = tiles_down.back().end();
    }
    up = tiles_up.front();
    down = tiles_down.front();
  }
  if (model.experts == 0) return;
  for (std::int64_t e = 0; e < model.experts / expert_ranks; ++e) {
    experts_up.push_back({count, model.biases});
    experts_down.push_back({experts_up.back().end(), model.biases});
    count = experts_down.back().end();
  }
}

HeadIndices::HeadIndices(const Model& model) : norm(norm_at(model, 0)), words(norm.end()) {}

std::size_t head_words_of(const Model& model, const StageSlice& slice, std::size_t head) {
  const bool shared = model.tied_embeddings && slice.embedding;
  return shared ? EmbeddingIndices(model).words : head + HeadIndices(model).words;
}

namespace {

ElemCount count_of_each(const Model& model, const Layout& layout, const StageSlice& slice) {
  ElemCount count;
  std::map<std::pair<std::int32_t, std::int32_t>, double> parts;  // by part and tile
  for (const Parameter& parameter : parameters_of(model, layout, slice)) {
    const auto elems = static_cast<double>(elems_of_rank(parameter, layout));
    count.whole += elems;
    count.shard += elems / (parameter.expert ? expert_shards_of(layout) : shards_of(layout));
    // As in has_secondary(): experts, and the embedding, which backwards do not gather, have no secondary copy.
    const bool embeds = slice.embedding && parameter.part == 0;
    if (layout.secondary_ranks > 0 && !parameter.expert && !embeds) count.secondary += elems / layout.secondary_ranks;
    parts[{parameter.part, tile_unit_of(parameter)}] += elems;
  }
  for (const auto& [place, part] : parts) count.largest_part = std::max(count.largest_part, part);
  return count;
}

}  // namespace

// Layers are equal: only one is counted.
ElemCount count_elems(const Model& model, const Layout& layout, const StageSlice& slice) {
  StageSlice ends = slice;
  ends.layers = 0;
  ElemCount count = count_of_each(model, layout, ends);
  if (slice.layers == 0) return count;
  const ElemCount layer = count_of_each(model, layout, {.layers = 1});
  const auto layers = static_cast<double>(slice.layers);
  count.whole += layers * layer.whole;
  count.shard += layers * layer.shard;
  count.secondary += layers * layer.secondary;
  count.largest_part = std::max(count.largest_part, layer.largest_part);
  return count;
}

std::int32_t tile_unit_of(const Parameter& parameter) {
  return parameter.tile_of ? parameter.tile.index : -1;
}

std::size_t word_embedding_of(const std::vector<Parameter>& parameters) {
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [](const Parameter& parameter) { return parameter.name == kWordsName; });
  return static_cast<std::size_t>(found - parameters.begin());
}

bool is_partial_over(schedules::GroupKind kind, const Parameter& parameter, const Layout& layout) {
  if (kind == schedules::GroupKind::tensor) {
    return layout.sequence_parallel && parameter.name.find("ln_") != std::string::npos;
  }
  const bool splits = layout.has_grid() && members_along(layout.grid, kind) > 1;
  return splits && is_of_columns(parameter) && has_copies_along(kind, parameter, layout.grid);
}

bool is_first_with(const Parameter& parameter, const Layout& layout, std::int32_t tensor_index) {
  if (!layout.has_grid()) return parameter.split != Split::none || tensor_index == 0;
  const GridCoordinates at = place_of(layout.grid, tensor_index);
  return std::all_of(kGridGroups.begin(), kGridGroups.end(), [&](schedules::GroupKind axis) {
    return at.along(axis) == 0 || !has_copies_along(axis, parameter, layout.grid);
  });
}

}  // namespace lockstep::workload
