#include "workload/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "core/error.h"

namespace lockstep::workload {
namespace {

const Parameter& find(const std::vector<Parameter>& all, const std::string& name) {
  for (const Parameter& one : all) {
    if (one.name == name) return one;
  }
  throw core::usage_error("no parameter " + name);
}

StageSlice place_of(const Model& model, std::int32_t stages, std::int32_t stage) {
  return slice_of(model, {}, stages, stage);
}
std::vector<Parameter> parameters_of(const Model& model, const StageSlice& slice) {
  return parameters_of(model, {}, slice);
}

TEST(Gpt, ParametersOfThePartsAreTheModels) {
  for (const char* name : {"nano", "gpt2-124m", "llama3-8b", "mixtral-8x7b", "megatron-22b"}) {
    const Model model = parse_model(name);
    std::int64_t elems = 0;
    for (const Parameter& one : parameters_of(model, place_of(model, 1, 0))) elems += one.elems();
    EXPECT_EQ(elems, parameters_of(model)) << name;
  }
}

TEST(Gpt, StagesHaveAllLayersOnceAndTheFirstAreLonger) {
  Model config = parse_model("nano");
  for (config.layers = 1; config.layers <= 9; ++config.layers) {
    for (std::int32_t stages = 1; stages <= config.layers; ++stages) {
      std::int64_t next = 0;
      for (std::int32_t s = 0; s < stages; ++s) {
        const StageSlice place = place_of(config, stages, s);
        EXPECT_EQ(place.first_layer, next);
        EXPECT_EQ(place.layers, config.layers / stages + (s < config.layers % stages ? 1 : 0));
        EXPECT_EQ(place.embedding, s == 0);
        EXPECT_EQ(place.head, s == stages - 1);
        next += place.layers;
      }
      EXPECT_EQ(next, config.layers);
    }
  }
}

TEST(Gpt, StagesTogetherHaveTheModelsParametersAndTheHeadItsOwnWords) {
  const Model config = parse_model("micro");
  std::set<std::string> whole;
  for (const Parameter& one : parameters_of(config, place_of(config, 1, 0))) {
    EXPECT_TRUE(whole.insert(one.name).second) << one.name;
  }
  std::multiset<std::string> spread;
  for (std::int32_t s = 0; s < 4; ++s) {
    const StageSlice place = place_of(config, 4, s);
    for (const Parameter& one : parameters_of(config, place)) {
      spread.insert(one.name);
      EXPECT_GE(one.part, 0);
      EXPECT_LT(one.part, place.num_parts());
    }
  }
  EXPECT_EQ(spread.count("wte.weight"), 2U);
  spread.erase(spread.find("wte.weight"));
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(), spread.begin(), spread.end()));
}

TEST(Gpt, PartsAscendAndTheHeadAloneHasItsWordsInItsPart) {
  const Model config = parse_model("nano");
  const StageSlice last = place_of(config, 2, 1);
  const std::vector<Parameter> of_last = parameters_of(config, last);
  std::int32_t part = 0;
  for (const Parameter& one : of_last) {
    EXPECT_GE(one.part, part);
    part = one.part;
  }
  EXPECT_EQ(find(of_last, "wte.weight").part, last.num_parts() - 1);
  EXPECT_EQ(find(parameters_of(config, place_of(config, 1, 0)), "wte.weight").part, 0);
}

TEST(Gpt, InitialDeviationsAreGpt2s) {
  const Model config = parse_model("gpt2-124m");
  const std::vector<Parameter> all = parameters_of(config, place_of(config, 1, 0));
  EXPECT_FLOAT_EQ(find(all, "wte.weight").deviation, 0.02F);
  EXPECT_FLOAT_EQ(find(all, "wpe.weight").deviation, 0.01F);
  EXPECT_FLOAT_EQ(find(all, "h.3.attn.c_attn.weight").deviation, 0.02F);
  EXPECT_FLOAT_EQ(find(all, "h.3.attn.c_proj.weight").deviation, 0.02F / std::sqrt(24.0F));
  EXPECT_FLOAT_EQ(find(all, "h.11.mlp.c_proj.weight").deviation, 0.02F / std::sqrt(24.0F));
  EXPECT_EQ(find(all, "ln_f.weight").fill, 1.0F);
  EXPECT_EQ(find(all, "h.0.ln_1.bias").fill, 0.0F);
  EXPECT_EQ(find(all, "h.0.attn.c_attn.bias").deviation, 0.0F);
}

TEST(Gpt, MatricesDecayAndNothingElse) {
  const Model config = parse_model("nano");
  for (const Parameter& one : parameters_of(config, place_of(config, 1, 0))) {
    EXPECT_EQ(one.decays, one.shape.size() == 2) << one.name;
  }
}

TEST(Gpt, SplitsAreMegatrons) {
  const Model config = parse_model("nano");
  const std::vector<Parameter> all = parameters_of(config, place_of(config, 1, 0));
  EXPECT_EQ(find(all, "h.0.attn.c_attn.weight").split, Split::rows);
  EXPECT_EQ(find(all, "h.0.attn.c_attn.weight").blocks, 3);
  EXPECT_EQ(find(all, "h.0.attn.c_attn.bias").blocks, 3);
  EXPECT_EQ(find(all, "h.0.attn.c_proj.weight").split, Split::columns);
  EXPECT_EQ(find(all, "h.0.attn.c_proj.bias").split, Split::none);
  EXPECT_EQ(find(all, "h.0.mlp.c_fc.bias").split, Split::rows);
  EXPECT_EQ(find(all, "h.0.mlp.c_proj.weight").split, Split::columns);
  EXPECT_EQ(find(all, "wte.weight").split, Split::rows);
  EXPECT_EQ(find(all, "wpe.weight").split, Split::none);
}

TEST(Gpt, OnlyNormsArePartialOverTensorRanksAndOnlyWithSharedRows) {
  const Model config = parse_model("nano");
  int partial = 0;
  for (const Parameter& one : parameters_of(config, place_of(config, 1, 0))) {
    EXPECT_FALSE(is_partial_over_tensor(one, false));
    partial += is_partial_over_tensor(one, true) ? 1 : 0;
  }
  EXPECT_EQ(partial, 2 * (2 * config.layers + 1));
}

}  // namespace
}  // namespace lockstep::workload
