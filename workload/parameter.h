// A parameter of a model, and what one tensor-parallel rank has of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::workload {

// How tensor-parallel ranks share a parameter out (Shoeybi et al. 2019, arXiv:1909.08053, section 3).
enum class Split : std::uint8_t {
  none,     // each has all of it
  rows,     // of the first axis: the outputs of a column-parallel linear layer, the words of a vocabulary
  columns,  // of the second axis: the inputs of a row-parallel one
};

struct TensorPlace {
  std::int32_t ranks = 1;
  std::int32_t index = 0;
};

struct Parameter {
  std::string name;                 // as Hugging Face's GPT-2 has it: "h.0.attn.c_attn.weight"
  std::vector<std::int64_t> shape;  // whole, as kernels have it: a matrix is [outputs, inputs]
  Split split = Split::none;
  // Lengths of the blocks of the split axis, each of which is shared out: those of Q, K and V. Empty: it is one block.
  std::vector<std::int64_t> blocks = {};
  std::int32_t part = 0;  // of the pipeline stage, in the forward's order
  float deviation = 0;    // initial values: normal with mean 0, or, if 0, all `fill`
  float fill = 0;
  // The name by which initial values are drawn, if not by its own: a mixture's first expert starts as a dense MLP does.
  std::string drawn_as = {};
  // A tile of another parameter (Layout::mlp_tiles): it has what rank `tile.index` of `tile.ranks` has of that, and its
  // initial values.
  std::shared_ptr<const Parameter> tile_of = {};
  TensorPlace tile = {};
  bool expert = false;  // its gradient is reduced over the ranks that have the same experts
  bool decays = false;  // AdamW's weight decay: matrices, not biases and norms

  std::int64_t elems() const;
};

// The shape of a rank's share. Rows that the ranks do not divide are padded at the end (words_a_rank); blocks and
// columns have to divide, which whoever makes the layout checks.
std::vector<std::int64_t> shape_of_share(const Parameter& parameter, std::int32_t tensor_ranks);
std::int64_t elems_of_share(const Parameter& parameter, std::int32_t tensor_ranks);

// Calls visit(share_begin, whole_begin, count) for runs of elements that lie side by side in both, ascending in the
// share. Padding is in no run.
void for_each_run(
    const Parameter& parameter, TensorPlace place,
    const std::function<void(std::int64_t share_begin, std::int64_t whole_begin, std::int64_t count)>& visit);

}  // namespace lockstep::workload
