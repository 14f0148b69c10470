#include "trainer/model/gpt.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace lockstep::trainer {
namespace {

using parallel::Parameter;
using parallel::Split;

// As openai/gpt-2 has it, src/model.py: 0.02 for matrices and words, 0.01 for positions. Projections into the residual
// stream are scaled by one over the root of its additions, two a layer (Radford et al. 2019, section 2.3).
constexpr float kDeviation = 0.02F;
constexpr float kPositionDeviation = 0.01F;

float residual_deviation(const GptConfig& config) {
  return kDeviation / std::sqrt(2 * static_cast<float>(config.layers));
}

// Parameters of one part, in the order of parameter_order.h.
class PartWriter {
 public:
  PartWriter(std::vector<Parameter>& to, std::int32_t part, std::string prefix)
      : to_(to), part_(part), prefix_(std::move(prefix)) {}

  void matrix(const std::string& name, std::int64_t outputs, std::int64_t inputs, Split split, float deviation,
              std::int32_t blocks = 1) {
    to_.push_back({.name = prefix_ + name,
                   .shape = {outputs, inputs},
                   .split = split,
                   .blocks = blocks,
                   .part = part_,
                   .deviation = deviation,
                   .decays = true});
  }
  void vector(const std::string& name, std::int64_t elems, Split split = Split::none, std::int32_t blocks = 1,
              float fill = 0) {
    to_.push_back(
        {.name = prefix_ + name, .shape = {elems}, .split = split, .blocks = blocks, .part = part_, .fill = fill});
  }
  void norm(const std::string& name, std::int64_t columns) {
    vector(name + ".weight", columns, Split::none, 1, 1.0F);
    vector(name + ".bias", columns);
  }
  // The bias of a column-parallel layer is shared out as its outputs are; of a row-parallel one it is whole.
  void linear(const std::string& name, std::int64_t outputs, std::int64_t inputs, Split split, float deviation,
              std::int32_t blocks = 1) {
    matrix(name + ".weight", outputs, inputs, split, deviation, blocks);
    const bool shared = split == Split::rows;
    vector(name + ".bias", outputs, shared ? Split::rows : Split::none, shared ? blocks : 1);
  }

 private:
  std::vector<Parameter>& to_;
  std::int32_t part_;
  std::string prefix_;
};

void add_words(const GptConfig& config, std::int32_t part, std::vector<Parameter>& to) {
  PartWriter(to, part, "").matrix("wte.weight", config.vocabulary, config.hidden, Split::rows, kDeviation);
}

void add_layer(const GptConfig& config, std::int64_t layer, std::int32_t part, std::vector<Parameter>& to) {
  const std::int64_t c = config.hidden;
  PartWriter writer(to, part, "h." + std::to_string(layer) + ".");
  writer.norm("ln_1", c);
  writer.linear("attn.c_attn", 3 * c, c, Split::rows, kDeviation, 3);
  writer.linear("attn.c_proj", c, c, Split::columns, residual_deviation(config));
  writer.norm("ln_2", c);
  writer.linear("mlp.c_fc", 4 * c, c, Split::rows, kDeviation);
  writer.linear("mlp.c_proj", c, 4 * c, Split::columns, residual_deviation(config));
}

}  // namespace

std::int64_t GptConfig::parameters() const {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters_of(*this, place_of(*this, 1, 0))) sum += parameter.elems();
  return sum;
}

// Sizes by their parameters: Radford et al. 2019, table 2, with the counts of the released models.
std::vector<GptConfig> known_gpts() {
  constexpr std::int64_t kBytes = 256;    // bytes as tokens
  constexpr std::int64_t kWords = 50257;  // byte pairs of the released models
  return {
      {.name = "nano", .layers = 4, .hidden = 128, .heads = 4, .vocabulary = kBytes, .length = 128},
      {.name = "micro", .layers = 6, .hidden = 192, .heads = 6, .vocabulary = kBytes, .length = 256},
      {.name = "bench-a", .layers = 4, .hidden = 256, .heads = 4, .vocabulary = kBytes, .length = 128},
      {.name = "124M", .layers = 12, .hidden = 768, .heads = 12, .vocabulary = kWords, .length = 1024},
      {.name = "355M", .layers = 24, .hidden = 1024, .heads = 16, .vocabulary = kWords, .length = 1024},
      {.name = "774M", .layers = 36, .hidden = 1280, .heads = 20, .vocabulary = kWords, .length = 1024},
      {.name = "1558M", .layers = 48, .hidden = 1600, .heads = 25, .vocabulary = kWords, .length = 1024},
  };
}

GptConfig find_gpt(std::string_view name) {
  std::string allowed;
  for (const GptConfig& known : known_gpts()) {
    if (known.name == name) return known;
    allowed += (allowed.empty() ? "" : ", ") + known.name;
  }
  throw core::usage_error("model '" + std::string(name) + "' is not known; allowed: " + allowed);
}

StagePlace place_of(const GptConfig& config, std::int32_t stages, std::int32_t stage) {
  LOCKSTEP_CHECK(stage >= 0 && stage < stages, "a stage of the pipeline");
  if (config.layers < stages) {
    throw core::usage_error(std::to_string(stages) + " pipeline stages for " + std::to_string(config.layers) +
                            " layers; allowed: at most one a layer");
  }
  const std::int64_t even = config.layers / stages;
  const std::int64_t longer = config.layers % stages;  // stages with one more
  return {.first_layer = stage * even + std::min<std::int64_t>(stage, longer),
          .layers = even + (stage < longer ? 1 : 0),
          .embedding = stage == 0,
          .head = stage == stages - 1};
}

std::vector<Parameter> parameters_of(const GptConfig& config, const StagePlace& place) {
  std::vector<Parameter> all;
  if (place.embedding) {
    add_words(config, 0, all);
    PartWriter(all, 0, "").matrix("wpe.weight", config.length, config.hidden, Split::none, kPositionDeviation);
  }
  for (std::int64_t i = 0; i < place.layers; ++i) {
    const std::int64_t layer = place.first_layer + i;
    add_layer(config, layer, place.part_of_layer(layer), all);
  }
  if (place.head) {
    const std::int32_t part = place.num_parts() - 1;
    PartWriter(all, part, "").norm("ln_f", config.hidden);
    if (!place.embedding) add_words(config, part, all);
  }
  return all;
}

bool is_partial_over_tensor(const Parameter& parameter, bool sequence_parallel) {
  return sequence_parallel && parameter.name.find("ln_") != std::string::npos;
}

}  // namespace lockstep::trainer
