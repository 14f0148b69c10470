// The parameters of a stage, part by part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "workload/layout.h"
#include "workload/model.h"
#include "workload/parameter.h"

namespace lockstep::workload {

// In the forward's order, by the names of Hugging Face's GPT-2. A stage with both embedding and head has a tied word
// embedding once, in part 0; one with the head alone has it in the head's part (its gradient is then summed over both
// stages, and it starts from the same values). Of a mixture's experts, those that the expert-parallel rank
// `expert_rank` has; but for the names all have alike.
std::vector<Parameter> parameters_of(const Model& model, const Layout& layout, const StageSlice& slice,
                                     std::int32_t expert_rank = 0);

// What one tensor rank has of a parameter. Of a grid (Layout::grid) the ranks that have different parts of the weights
// share a matrix out, and the others' parts have copies; norms and biases go with columns.
std::int64_t elems_of_rank(const Parameter& parameter, const Layout& layout);

// How many parameters one tensor rank has of a stage: all of them, its shard with ZeRO or FSDP, its shard of a
// secondary copy (Layout::secondary_ranks), and of the largest part.
struct ElemCount {
  double whole = 0;
  double shard = 0;
  double secondary = 0;
  double largest_part = 0;
};
ElemCount count_elems(const Model& model, const Layout& layout, const StageSlice& slice);

// A weight of a linear layer or a norm among a stage's parameters, and, behind it, the bias if the model has one.
struct WeightPlace {
  std::size_t weight = 0;
  bool has_bias = false;

  std::size_t bias() const { return weight + 1; }
  std::size_t end() const { return weight + (has_bias ? 2 : 1); }
  WeightPlace behind(std::size_t first) const { return {first + weight, has_bias}; }
};

// The places at which parameters_of() puts the parameters of a part, counted from the part's first.
struct LayerPlaces {
  // `expert_ranks`: of the layout, which share the experts out. `tiles`: Layout::mlp_tiles.
  explicit LayerPlaces(const Model& model, std::int32_t expert_ranks = 1, std::int32_t tiles = 1);
  WeightPlace norm1, qkv, projection, norm2;
  WeightPlace up, down;                               // of a dense MLP, or a mixture's shared experts
  std::vector<WeightPlace> tiles_up, tiles_down;      // likewise, tile by tile: up and down are the first
  WeightPlace router;                                 // of a mixture, and
  std::vector<WeightPlace> experts_up, experts_down;  // of its experts on one rank
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
  std::size_t words;  // of a head that has a matrix of its own
};
// The matrix of the head among the parameters of its stage, whose head has its first parameter at `head`.
std::size_t head_words_of(const Model& model, const StageSlice& slice, std::size_t head);

// The tile whose unit a parameter is of (Layout::mlp_tiles); -1: that of the rest of its part.
std::int32_t tile_unit_of(const Parameter& parameter);

// The word embedding among a stage's parameters; their number if the stage has none.
std::size_t word_embedding_of(const std::vector<Parameter>& parameters);

// Whether tensor ranks have different gradients of a parameter that they all have whole, which are to be summed: of
// norms, where each rank has a share of the rows. All else that is whole sees whole rows on every rank.
// In a grid also those of biases, whose columns several ranks have.
bool is_partial_over_tensor(const Parameter& parameter, const Layout& layout);

}  // namespace lockstep::workload
