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

// The places of parameters, by the names that parameters_of() gives them.
TEST(Gpt, PlacesAreThoseOfTheParameters) {
  for (const char* fields : {"norm=layer,biases=yes", "norm=rms,biases=yes", "norm=layer,biases=no",
                             "norm=rms,biases=no,gated=yes,kv_heads=2,learned_positions=no",
                             "experts=2,shared_hidden=96", "experts=2,shared_hidden=96,biases=no,gated=yes"}) {
    for (const char* tied : {",tied_embeddings=yes", ",tied_embeddings=no"}) {
      const Model model = parse_model(std::string("nano,") + fields + tied);
      for (std::int32_t stage = 0; stage < 3; ++stage) {
        const StageSlice slice = stage == 2 ? place_of(model, 1, 0) : place_of(model, 2, stage);
        const std::vector<Parameter> all = parameters_of(model, slice);
        const auto at = [&](std::size_t place) { return place < all.size() ? all[place].name : "nothing"; };
        const auto is = [&](WeightPlace place, const std::string& name) {
          EXPECT_EQ(at(place.weight), name + ".weight");
          EXPECT_EQ(at(place.weight + 1) == name + ".bias", place.has_bias) << name;
        };
        std::size_t first = 0;
        if (slice.embedding) {
          const EmbeddingPlaces places(model);
          EXPECT_EQ(at(places.words), "wte.weight");
          EXPECT_EQ(at(places.positions) == "wpe.weight", model.learned_positions);
          first += places.count;
        }
        const LayerPlaces places(model);
        for (std::int64_t i = 0; i < slice.layers; ++i, first += places.count) {
          const std::string layer = "h." + std::to_string(slice.first_layer + i) + ".";
          is(places.norm1.behind(first), layer + "ln_1");
          is(places.qkv.behind(first), layer + "attn.c_attn");
          is(places.projection.behind(first), layer + "attn.c_proj");
          is(places.norm2.behind(first), layer + "ln_2");
          const std::string mlp = layer + (model.experts > 0 ? "mlp.shared." : "mlp.");
          is(places.up.behind(first), mlp + "c_fc");
          is(places.down.behind(first), mlp + "c_proj");
          for (std::size_t e = 0; e < places.experts_up.size(); ++e) {
            const std::string expert = layer + "mlp.experts." + std::to_string(e) + ".";
            is(places.experts_up[e].behind(first), expert + "c_fc");
            is(places.experts_down[e].behind(first), expert + "c_proj");
          }
        }
        if (!slice.head) continue;
        is(HeadPlaces(model).norm.behind(first), "ln_f");
        EXPECT_EQ(at(head_words_of(model, slice, first)), model.tied_embeddings ? "wte.weight" : "lm_head.weight");
      }
    }
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
  EXPECT_EQ(find(all, "h.0.attn.c_attn.weight").blocks, (std::vector<std::int64_t>{128, 128, 128}));
  EXPECT_EQ(find(all, "h.0.attn.c_attn.bias").blocks, (std::vector<std::int64_t>{128, 128, 128}));
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
    EXPECT_FALSE(is_partial_over_tensor(one, parse_layout("tp=2")));
    partial += is_partial_over_tensor(one, parse_layout("tp=2,sp=yes")) ? 1 : 0;
  }
  EXPECT_EQ(partial, 2 * (2 * config.layers + 1));
}

}  // namespace
}  // namespace lockstep::workload
