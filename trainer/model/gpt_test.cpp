#include "trainer/model/gpt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "core/error.h"

namespace lockstep::trainer {
namespace {

using parallel::Parameter;
using parallel::Split;

const Parameter& find(const std::vector<Parameter>& all, const std::string& name) {
  for (const Parameter& one : all) {
    if (one.name == name) return one;
  }
  throw core::usage_error("no parameter " + name);
}

// The counts of the models that OpenAI released, embeddings once.
TEST(Gpt, HasAsManyParametersAsTheReleasedModels) {
  EXPECT_EQ(find_gpt("124M").parameters(), 124'439'808);
  EXPECT_EQ(find_gpt("355M").parameters(), 354'823'168);
  EXPECT_EQ(find_gpt("774M").parameters(), 774'030'080);
  EXPECT_EQ(find_gpt("1558M").parameters(), 1'557'611'200);
}

TEST(Gpt, AnUnknownNameIsRefusedWithThoseThatThereAre) {
  try {
    find_gpt("125M");
    FAIL() << "it is not known";
  } catch (const core::Error& error) {
    EXPECT_EQ(error.failure(), core::Failure::usage);
    EXPECT_NE(std::string(error.what()).find("'125M'"), std::string::npos);
    for (const GptConfig& known : known_gpts()) {
      EXPECT_NE(std::string(error.what()).find(known.name), std::string::npos) << known.name;
    }
  }
}

TEST(Gpt, EveryKnownSizeDividesByItsHeads) {
  for (const GptConfig& known : known_gpts()) EXPECT_EQ(known.hidden % known.heads, 0) << known.name;
}

TEST(Gpt, StagesHaveAllLayersOnceAndTheFirstAreLonger) {
  GptConfig config = find_gpt("nano");
  for (config.layers = 1; config.layers <= 9; ++config.layers) {
    for (std::int32_t stages = 1; stages <= config.layers; ++stages) {
      std::int64_t next = 0;
      for (std::int32_t s = 0; s < stages; ++s) {
        const StagePlace place = place_of(config, stages, s);
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

TEST(Gpt, MoreStagesThanLayersAreRefused) {
  EXPECT_THROW(place_of(find_gpt("nano"), 5, 0), core::Error);
}

TEST(Gpt, StagesTogetherHaveTheModelsParametersAndTheHeadItsOwnWords) {
  const GptConfig config = find_gpt("micro");
  std::set<std::string> whole;
  for (const Parameter& one : parameters_of(config, place_of(config, 1, 0))) {
    EXPECT_TRUE(whole.insert(one.name).second) << one.name;
  }
  std::multiset<std::string> spread;
  for (std::int32_t s = 0; s < 4; ++s) {
    const StagePlace place = place_of(config, 4, s);
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
  const GptConfig config = find_gpt("nano");
  const StagePlace last = place_of(config, 2, 1);
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
  const GptConfig config = find_gpt("124M");
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
  const GptConfig config = find_gpt("nano");
  for (const Parameter& one : parameters_of(config, place_of(config, 1, 0))) {
    EXPECT_EQ(one.decays, one.shape.size() == 2) << one.name;
  }
}

TEST(Gpt, SplitsAreMegatrons) {
  const GptConfig config = find_gpt("nano");
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
  const GptConfig config = find_gpt("nano");
  int partial = 0;
  for (const Parameter& one : parameters_of(config, place_of(config, 1, 0))) {
    EXPECT_FALSE(is_partial_over_tensor(one, false));
    partial += is_partial_over_tensor(one, true) ? 1 : 0;
  }
  EXPECT_EQ(partial, 2 * (2 * config.layers + 1));
}

}  // namespace
}  // namespace lockstep::trainer
