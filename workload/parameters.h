// Parameters of a model, whole and as a rank's share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "workload/layout.h"
#include "workload/model.h"

namespace lockstep::workload {

// A parameter of a model, and one tensor-parallel rank's share of it.

// How tensor-parallel ranks split a parameter (Shoeybi et al. 2019, arXiv:1909.08053, section 3).
enum class Split : std::uint8_t {
  none,     // each has all of it
  rows,     // first axis: the outputs of a column-parallel linear layer, the words of a vocabulary
  columns,  // second axis: the inputs of a row-parallel one
};

struct TensorPlace {
  std::int32_t ranks = 1;
  std::int32_t index = 0;
};

struct Parameter {
  std::string name;                 // as in Hugging Face's GPT-2: "h.0.attn.c_attn.weight"
  std::vector<std::int64_t> shape;  // whole, as kernels take it: a matrix is [outputs, inputs]
  Split split = Split::none;
  // Lengths of the blocks of the split axis, each of which is split: those of Q, K and V. Empty: one block.
  std::vector<std::int64_t> blocks = {};
  std::int32_t part = 0;  // part of the pipeline stage, in forward order
  float deviation = 0;    // initial values: normal with mean 0; if 0, all `fill`
  float fill = 0;
  // Name by which initial values are drawn, if not its own: a mixture's first expert starts like a dense MLP.
  std::string drawn_as = {};
  // A tile of another parameter (Layout::mlp_tiles) is rank `tile.index`'s share of it among `tile.ranks`, with its
  // initial values.
  std::shared_ptr<const Parameter> tile_of = {};
  TensorPlace tile = {};
  bool expert = false;  // its gradient is reduced over the ranks that have the same experts
  bool decays = false;  // AdamW's weight decay: matrices, not biases and norms

  std::int64_t elems() const;
};

// The shape of a rank's share. Rows that the ranks do not divide are padded at the end (words_per_rank); blocks and
// columns must be divisible, which is checked with the layout.
std::vector<std::int64_t> shape_of_share(const Parameter& parameter, std::int32_t tensor_ranks);
std::int64_t elems_of_share(const Parameter& parameter, std::int32_t tensor_ranks);

// Calls visit(share_begin, whole_begin, count) for runs of elements that are contiguous in both, ascending in the
// share. Padding is in no run.
void for_each_run(
    const Parameter& parameter, TensorPlace place,
    const std::function<void(std::int64_t share_begin, std::int64_t whole_begin, std::int64_t count)>& visit);

// The parameters of a stage, part by part.

// In forward order, with the names of Hugging Face's GPT-2. A stage with both embedding and head has a tied word
// embedding once, in part 0; one with only the head has it in the head's part (its gradient is then summed over both
// stages, and it starts from the same values). Of a mixture's experts, those of the expert-parallel rank `expert_rank`;
// only their names depend on it.
std::vector<Parameter> parameters_of(const Model& model, const Layout& layout, const StageSlice& slice,
                                     std::int32_t expert_rank = 0);

// Elements of a parameter on one tensor-parallel rank. In a grid (Layout::grid) the ranks with different parts of the
// weights split a matrix, and the others have copies of these parts; norms and biases are split like columns.
std::int64_t elems_of_rank(const Parameter& parameter, const Layout& layout);

// Number of parameters of a stage on one tensor-parallel rank: all of them, its shard with ZeRO or FSDP, its shard of a
// secondary copy (Layout::secondary_ranks), and those of the largest part.
struct ElemCount {
  double whole = 0;
  double shard = 0;
  double secondary = 0;
  double largest_part = 0;
};
ElemCount count_elems(const Model& model, const Layout& layout, const StageSlice& slice);

// Index of a weight of a linear layer or a norm among a stage's parameters; the bias, if the model has one, follows.
struct WeightPlace {
  std::size_t weight = 0;
  bool has_bias = false;

  std::size_t bias() const { return weight + 1; }
  std::size_t end() const { return weight + (has_bias ? 2 : 1); }
  WeightPlace behind(std::size_t first) const { return {first + weight, has_bias}; }
};

// Indices at which parameters_of() puts the parameters of a part, counted from the part's first.
struct LayerPlaces {
  // `expert_ranks`: of the layout, which split the experts. `tiles`: Layout::mlp_tiles.
  explicit LayerPlaces(const Model& model, std::int32_t expert_ranks = 1, std::int32_t tiles = 1);
  WeightPlace norm1, qkv, projection, norm2;
  WeightPlace up, down;                               // those of a dense MLP, or of a mixture's shared experts
  std::vector<WeightPlace> tiles_up, tiles_down;      // likewise, by tile: up and down are the first
  WeightPlace router;                                 // router of a mixture, and
  std::vector<WeightPlace> experts_up, experts_down;  // its experts on one rank
  std::size_t count;
};
struct EmbeddingPlaces {
  explicit EmbeddingPlaces(const Model& model) : count(model.learned_positions ? 2 : 1) {}
  std::size_t words = 0;
  std::size_t positions = 1;  // if they are learned
  std::size_t count;
};
struct HeadPlaces {
  explicit HeadPlaces(const Model& model);
  WeightPlace norm;
  std::size_t words;  // for a head that has a matrix of its own
};
// Index of the head's matrix among the parameters of its stage, where the head's first parameter is `head`.
std::size_t head_words_of(const Model& model, const StageSlice& slice, std::size_t head);

// The tile to whose unit a parameter belongs (Layout::mlp_tiles); -1: the unit of the rest of its part.
std::int32_t tile_unit_of(const Parameter& parameter);

// Index of the word embedding among a stage's parameters; their number if the stage has none.
std::size_t word_embedding_of(const std::vector<Parameter>& parameters);

// True if tensor-parallel ranks have different gradients of a parameter that they all have whole, which must be summed:
// norms, if each rank has a share of the rows. All other whole parameters see all rows on every rank. In a grid also
// biases, whose columns several ranks have.
bool is_partial_over_tensor(const Parameter& parameter, const Layout& layout);

}  // namespace lockstep::workload
