// GPT-2 (Radford et al. 2019): sizes, parameters, and how its layers are spread over pipeline stages.
//
// Pre-norm blocks: x += attention(norm(x)); x += mlp(norm(x)); learned positions; GELU by tanh; the word embedding is
// also the head's matrix.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/parameters/parameter.h"

namespace lockstep::trainer {

struct GptConfig {
  std::string name;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t vocabulary = 256;
  std::int64_t length = 0;  // positions

  std::int64_t parameters() const;
};

// "nano", "micro", "bench-a", "124M", "355M", "774M", "1558M". Throws a usage Error that lists them.
GptConfig find_gpt(std::string_view name);
std::vector<GptConfig> known_gpts();

// What one pipeline stage has.
struct StagePlace {
  std::int64_t first_layer = 0;
  std::int64_t layers = 0;
  bool embedding = false;
  bool head = false;

  // Parts in the forward's order: the embedding if it is here, the layers, the head if it is here.
  std::int32_t num_parts() const { return static_cast<std::int32_t>(layers) + (embedding ? 1 : 0) + (head ? 1 : 0); }
  std::int32_t part_of_layer(std::int64_t layer) const {
    return static_cast<std::int32_t>(layer - first_layer) + (embedding ? 1 : 0);
  }
};
// Layers are spread evenly; the first layers % stages stages have one more. Throws a usage Error with fewer layers than
// stages.
StagePlace place_of(const GptConfig& config, std::int32_t stages, std::int32_t stage);

// In the forward's order. A stage with both embedding and head has the word embedding once, in part 0; one with the
// head alone has it in the head's part (its gradient is then summed over both stages, and it starts from the same
// values).
std::vector<parallel::Parameter> parameters_of(const GptConfig& config, const StagePlace& place);

// Whether tensor ranks have different gradients of a parameter that they all have whole, which are to be summed: of
// norms, where each rank has a share of the rows. All else that is whole sees whole rows on every rank.
bool is_partial_over_tensor(const parallel::Parameter& parameter, bool sequence_parallel);

}  // namespace lockstep::trainer
