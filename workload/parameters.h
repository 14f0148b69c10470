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
// stages, and it starts from the same values). Of a mixture's experts, those that one expert-parallel rank has.
std::vector<Parameter> parameters_of(const Model& model, const Layout& layout, const StageSlice& slice);

// How many parameters one tensor rank has of a stage: all of them, its shard with ZeRO or FSDP, and of the largest
// part.
struct ElemCount {
  double whole = 0;
  double shard = 0;
  double largest_part = 0;
};
ElemCount count_elems(const Model& model, const Layout& layout, const StageSlice& slice);

// Where parameters_of() puts the parameters of a part of a dense model with biases, counted from the part's first. A
// weight and the bias behind it, of linear layers and norms alike, are named by the weight.
inline constexpr std::size_t kNorm1 = 0;
inline constexpr std::size_t kQkv = 2;
inline constexpr std::size_t kProjection = 4;
inline constexpr std::size_t kNorm2 = 6;
inline constexpr std::size_t kUp = 8;
inline constexpr std::size_t kDown = 10;
inline constexpr std::size_t kLayerParameters = 12;
inline constexpr std::size_t kWords = 0;
inline constexpr std::size_t kPositions = 1;
inline constexpr std::size_t kEmbeddingParameters = 2;
inline constexpr std::size_t kFinalNorm = 0;
inline constexpr std::size_t kOwnWords = 2;  // of a head without the embedding beside it

// The word embedding among a stage's parameters; their number if the stage has none.
std::size_t word_embedding_of(const std::vector<Parameter>& parameters);

// Whether tensor ranks have different gradients of a parameter that they all have whole, which are to be summed: of
// norms, where each rank has a share of the rows. All else that is whole sees whole rows on every rank.
bool is_partial_over_tensor(const Parameter& parameter, bool sequence_parallel);

}  // namespace lockstep::workload
