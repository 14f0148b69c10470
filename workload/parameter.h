// A parameter of a model, and one tensor-parallel rank's share of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::workload {

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

// The shape of a rank's share. Rows that the ranks do not divide are padded at the end (words_a_rank); blocks and
// columns must be divisible, which is checked with the layout.
std::vector<std::int64_t> shape_of_share(const Parameter& parameter, std::int32_t tensor_ranks);
std::int64_t elems_of_share(const Parameter& parameter, std::int32_t tensor_ranks);

// Calls visit(share_begin, whole_begin, count) for runs of elements that are contiguous in both, ascending in the
// share. Padding is in no run.
void for_each_run(
    const Parameter& parameter, TensorPlace place,
    const std::function<void(std::int64_t share_begin, std::int64_t whole_begin, std::int64_t count)>& visit);

}  // namespace lockstep::workload
