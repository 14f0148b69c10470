#include "workload/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "testing/core/refusal.h"
#include "workload/model.h"

namespace lockstep::workload {
namespace {

struct Published {
  const char* name;
  std::int64_t parameters;
};

// As counted from the published weights.
TEST(Parameters, AreExact) {
  for (const Published& row :
       {Published{"gpt2-124m", 124'439'808}, Published{"gpt2-355m", 354'823'168}, Published{"gpt2-774m", 774'030'080},
        Published{"gpt2-1.5b", 1'557'611'200}, Published{"llama2-7b", 6'738'415'616},
        Published{"llama2-13b", 13'015'864'320}, Published{"llama2-70b", 68'976'648'192},
        Published{"llama3-8b", 8'030'261'248}, Published{"llama3-70b", 70'553'706'496},
        Published{"llama3-405b", 405'853'388'800}, Published{"mixtral-8x7b", 46'702'792'704},
        Published{"mixtral-8x22b", 140'620'634'112}}) {
    EXPECT_EQ(parameters_of(parse_model(row.name)), row.parameters) << row.name;
  }
  EXPECT_NEAR(static_cast<double>(active_parameters_of(parse_model("mixtral-8x7b"))), 12.9e9, 0.05e9);
}

// Narayanan et al. 2021, equation 2, which omits the last norm.
TEST(Parameters, OfMegatronsModelsAreItsFormula) {
  for (const auto& [name, billions] : {std::pair<const char*, double>{"megatron-1.7b", 1.7},
                                       {"megatron-3.6b", 3.6},
                                       {"megatron-7.5b", 7.5},
                                       {"megatron-18.4b", 18.4},
                                       {"megatron-39.1b", 39.1},
                                       {"megatron-76.1b", 76.1},
                                       {"megatron-145.6b", 145.6},
                                       {"megatron-310.1b", 310.1},
                                       {"megatron-529.6b", 529.6},
                                       {"megatron-1008b", 1008.0}}) {
    const Model m = parse_model(name);
    const auto l = static_cast<double>(m.layers);
    const auto h = static_cast<double>(m.hidden);
    const auto words_and_places = static_cast<double>(m.vocabulary + m.sequence);
    const double formula = 12 * l * h * h * (1 + 13 / (12 * h) + words_and_places / (12 * l * h));
    EXPECT_DOUBLE_EQ(static_cast<double>(parameters_of(m)), formula + 2 * h) << name;
    EXPECT_NEAR(formula / 1e9, billions, 0.05) << name;
  }
}

TEST(TrainingFlops, AreMegatronsFormulas) {
  for (const char* name : {"megatron-1.7b", "megatron-175b", "megatron-1t"}) {
    const Model m = parse_model(name);
    const auto l = static_cast<double>(m.layers);
    const auto h = static_cast<double>(m.hidden);
    const auto s = static_cast<double>(m.sequence);
    const auto v = static_cast<double>(m.vocabulary);
    const double batch = 7;
    const double with = 96 * batch * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));
    const double without = 72 * batch * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
    EXPECT_NEAR(training_flops(m, batch * s, true) / with, 1, 1e-12);
    EXPECT_NEAR(training_flops(m, batch * s, false) / without, 1, 1e-12);
  }
}

// 6 N + 12 L H Q T: matrices of 12 layers of width 768 and the head's of 50,257 words, sequences of 1,024 tokens.
TEST(TrainingFlops, OfGpt2ByHand) {
  const Model gpt2 = parse_model("gpt2-124m");
  EXPECT_DOUBLE_EQ(training_flops(gpt2, 3, false), 3 * (6.0 * (84'934'656 + 38'597'376) + 12.0 * 12 * 768 * 1024));
}

// DeepSeekMoE 16B (Dai et al. 2024, arXiv:2401.06066, section 5.1.2): 28 layers, 64 experts of width 1408 of which a
// token uses 6, and two shared ones; 16.4 billion parameters, 2.8 billion active. Its first layer has a dense MLP of
// width 10944 in their place (its published configuration).
TEST(Parameters, OfSharedExpertsAreDeepSeeks) {
  const Model m = parse_model(
      "layers=28,hidden=2048,heads=16,ffn_hidden=1408,vocabulary=102400,sequence=4096,experts=64,experts_per_token=6,"
      "shared_hidden=2816,gated=yes,biases=no,norm=rms,tied_embeddings=no,learned_positions=no");
  const LayerParameters layer = layer_parameters(m);
  EXPECT_EQ(layer.shared, 2 * layer.mlp);
  const std::int64_t dense = std::int64_t{3} * 2048 * 10944;
  const std::int64_t first = layer.router + layer.shared;
  EXPECT_NEAR(static_cast<double>(parameters_of(m) - first - 64 * layer.mlp + dense) / 1e9, 16.4, 0.05);
  EXPECT_NEAR(static_cast<double>(active_parameters_of(m) - first - 6 * layer.mlp + dense) / 1e9, 2.8, 0.05);
}

std::string refusal_of(const char* text) {
  return core::refusal_of([&] { parse_model(text); });
}

TEST(ModelText, TakesNumbersAndChangesOfNames) {
  const Model own = parse_model("hidden=4096,layers=32,heads=32,gated=yes,norm=rms,biases=no");
  EXPECT_EQ(own.head_size, 128);
  EXPECT_EQ(own.ffn_hidden, 4 * 4096);
  EXPECT_EQ(own.kv_heads, 32);
  EXPECT_EQ(own.norm, Norm::rms);
  const Model longer = parse_model("llama3-8b,sequence=16384");
  EXPECT_EQ(longer.sequence, 16384);
  EXPECT_EQ(longer.kv_heads, 8);
  EXPECT_EQ(longer.name, "llama3-8b,sequence=16384");
  EXPECT_EQ(parse_model("gpt3-175b,hidden=6144").ffn_hidden, 4 * 6144);
}

TEST(ModelText, IsRefusedWithTheFieldAndWhatIsAllowed) {
  EXPECT_NE(refusal_of("gpt5").find("model: 'gpt5' is not known; allowed: nano"), std::string::npos);
  EXPECT_EQ(refusal_of("hidden=0"), "model: hidden=0: out of range; allowed: an integer from 1 to 10000000");
  EXPECT_EQ(refusal_of("hidden=64,heads=4"), "model: layers is 0; allowed: at least 1");
  EXPECT_EQ(refusal_of("layers=2,heads=3,hidden=64"),
            "model: heads is 3, and hidden is 64; allowed: divisors of hidden, or a head_size");
  EXPECT_EQ(parse_model("layers=2,heads=3,hidden=64,head_size=32").head_size, 32);
  EXPECT_EQ(refusal_of("llama3-8b,kv_heads=5"), "model: kv_heads is 5; allowed: divisors of heads, 32");
  EXPECT_EQ(refusal_of("mixtral-8x7b,expert_groups=3"), "model: expert_groups is 3; allowed: divisors of experts, 8");
  EXPECT_EQ(refusal_of("mixtral-8x7b,expert_groups=8,groups_per_token=1"),
            "model: groups_per_token is 1; allowed: 2 to 8, the expert_groups that have experts_per_token");
  EXPECT_EQ(refusal_of("nano,shared_hidden=64"), "model: shared_hidden is 64; allowed: 0, as the model has no experts");
  EXPECT_EQ(refusal_of("nano,expert_groups=2"), "model: expert_groups is 2; allowed: 1, as the model has no experts");
  EXPECT_EQ(refusal_of("mixtral-8x7b,experts_per_token=9"), "model: experts_per_token is 9; allowed: 1 to 8");
  EXPECT_NE(refusal_of("gpt3-175b,layer=3").find("no such field; nearest: layers; allowed: layers hidden"),
            std::string::npos);
  EXPECT_NE(refusal_of("").find("is not known"), std::string::npos);
}

TEST(ModelText, KnowsEveryName) {
  for (const std::string& name : model_names()) EXPECT_EQ(why_invalid(parse_model(name)), "") << name;
}

using Shape = std::vector<std::int64_t>;

// The whole parameter's index of each element of a share, -1 for padding.
std::vector<std::int64_t> share_of(const Parameter& parameter, TensorRank place) {
  std::vector<std::int64_t> share(static_cast<std::size_t>(elems_of_share(parameter, place)), -1);
  std::int64_t next = 0;
  for_each_run(parameter, place, [&](std::int64_t share_begin, std::int64_t whole_begin, std::int64_t count) {
    EXPECT_GE(share_begin, next) << "runs ascend in the share";
    EXPECT_GT(count, 0);
    next = share_begin + count;
    for (std::int64_t i = 0; i < count; ++i) share.at(static_cast<std::size_t>(share_begin + i)) = whole_begin + i;
  });
  return share;
}

TEST(Parameter, UnsplitIsWholeOnEachRank) {
  const Parameter norm{.name = "ln_f.weight", .shape = {5}};
  EXPECT_EQ(shape_of_share(norm, 4), Shape({5}));
  EXPECT_EQ(share_of(norm, {4, 2}), std::vector<std::int64_t>({0, 1, 2, 3, 4}));
}

TEST(Parameter, RowsOfBlocksAreSharedOutBlockByBlock) {
  // Q, K and V of two heads, one row each; two columns.
  const Parameter attention{.name = "attn", .shape = {6, 2}, .split = Split::rows, .blocks = {2, 2, 2}};
  EXPECT_EQ(shape_of_share(attention, 2), Shape({3, 2}));
  EXPECT_EQ(share_of(attention, {2, 0}), std::vector<std::int64_t>({0, 1, 4, 5, 8, 9}));
  EXPECT_EQ(share_of(attention, {2, 1}), std::vector<std::int64_t>({2, 3, 6, 7, 10, 11}));
}

// Four heads of queries and two of keys and values, one row each: a rank has a head of keys and the two that read it.
TEST(Parameter, QueriesGoWithTheKeysThatTheyRead) {
  const Parameter grouped{.name = "attn", .shape = {8}, .split = Split::rows, .blocks = {4, 2, 2}};
  EXPECT_EQ(share_of(grouped, {2, 0}), std::vector<std::int64_t>({0, 1, 4, 6}));
  EXPECT_EQ(share_of(grouped, {2, 1}), std::vector<std::int64_t>({2, 3, 5, 7}));
}

TEST(Parameter, RowsOfAVocabularyArePadded) {
  const Parameter words{.name = "wte", .shape = {7, 2}, .split = Split::rows};
  EXPECT_EQ(shape_of_share(words, 4), Shape({2, 2}));
  EXPECT_EQ(share_of(words, {4, 3}), std::vector<std::int64_t>({12, 13, -1, -1}));
  const Parameter few{.name = "wte", .shape = {2, 1}, .split = Split::rows};
  EXPECT_EQ(share_of(few, {4, 3}), std::vector<std::int64_t>({-1}));
}

TEST(Parameter, ColumnsAreARunARow) {
  const Parameter projection{.name = "proj", .shape = {2, 4}, .split = Split::columns};
  EXPECT_EQ(shape_of_share(projection, 2), Shape({2, 2}));
  EXPECT_EQ(share_of(projection, {2, 1}), std::vector<std::int64_t>({2, 3, 6, 7}));
  int runs = 0;
  for_each_run(projection, {1, 0}, [&](std::int64_t, std::int64_t, std::int64_t count) {
    ++runs;
    EXPECT_EQ(count, 8);
  });
  EXPECT_EQ(runs, 1) << "adjacent runs are one";
}

TEST(Parameter, EachWholeElementIsOnOneRank) {
  const std::vector<Parameter> parameters = {
      {.name = "wte", .shape = {11, 3}, .split = Split::rows},
      {.name = "qkv", .shape = {24, 5}, .split = Split::rows, .blocks = {8, 8, 8}},
      {.name = "qkv.bias", .shape = {24}, .split = Split::rows, .blocks = {8, 8, 8}},
      {.name = "proj", .shape = {3, 8}, .split = Split::columns},
      {.name = "two blocks", .shape = {2, 16}, .split = Split::columns, .blocks = {8, 8}},
      {.name = "qkv of few keys", .shape = {24, 5}, .split = Split::rows, .blocks = {16, 4, 4}},
  };
  for (const Parameter& parameter : parameters) {
    for (const std::int32_t ranks : {1, 2, 4}) {
      std::vector<int> seen(static_cast<std::size_t>(parameter.elems()));
      for (std::int32_t index = 0; index < ranks; ++index) {
        for (const std::int64_t whole : share_of(parameter, {ranks, index})) {
          if (whole >= 0) ++seen.at(static_cast<std::size_t>(whole));
        }
      }
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << parameter.name << " over " << ranks;
    }
  }
}

TEST(Parameter, WhatRanksDoNotDivideIsABug) {
  const Parameter blocks{.name = "qkv", .shape = {9, 2}, .split = Split::rows, .blocks = {3, 3, 3}};
  EXPECT_THROW(shape_of_share(blocks, 2), core::Error);
  const Parameter columns{.name = "proj", .shape = {2, 5}, .split = Split::columns};
  EXPECT_THROW(elems_of_share(columns, {2}), core::Error);
  const Parameter line{.name = "bias", .shape = {4}, .split = Split::columns};
  EXPECT_THROW(elems_of_share(line, {2}), core::Error);
}

const Parameter& find(const std::vector<Parameter>& all, const std::string& name) {
  for (const Parameter& parameter : all) {
    if (parameter.name == name) return parameter;
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
    for (const Parameter& parameter : parameters_of(model, place_of(model, 1, 0))) elems += parameter.elems();
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
        const auto is = [&](WeightIndex place, const std::string& name) {
          EXPECT_EQ(at(place.weight), name + ".weight");
          EXPECT_EQ(at(place.weight + 1) == name + ".bias", place.has_bias) << name;
        };
        std::size_t first = 0;
        if (slice.embedding) {
          const EmbeddingIndices places(model);
          EXPECT_EQ(at(places.words), "wte.weight");
          EXPECT_EQ(at(places.positions) == "wpe.weight", model.learned_positions);
          first += places.count;
        }
        const LayerIndices places(model);
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
        is(HeadIndices(model).norm.behind(first), "ln_f");
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
  for (const Parameter& parameter : parameters_of(config, place_of(config, 1, 0))) {
    EXPECT_TRUE(whole.insert(parameter.name).second) << parameter.name;
  }
  std::multiset<std::string> spread;
  for (std::int32_t s = 0; s < 4; ++s) {
    const StageSlice place = place_of(config, 4, s);
    for (const Parameter& parameter : parameters_of(config, place)) {
      spread.insert(parameter.name);
      EXPECT_GE(parameter.part, 0);
      EXPECT_LT(parameter.part, place.num_parts());
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
  for (const Parameter& parameter : of_last) {
    EXPECT_GE(parameter.part, part);
    part = parameter.part;
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
  for (const Parameter& parameter : parameters_of(config, place_of(config, 1, 0))) {
    EXPECT_EQ(parameter.decays, parameter.shape.size() == 2) << parameter.name;
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
  for (const Parameter& parameter : parameters_of(config, place_of(config, 1, 0))) {
    for (const schedules::GroupKind kind : kTensorGroups) {
      EXPECT_FALSE(is_partial_over(kind, parameter, parse_layout("tp=2")));
    }
    partial += is_partial_over(schedules::GroupKind::tensor, parameter, parse_layout("tp=2,sp=yes")) ? 1 : 0;
  }
  EXPECT_EQ(partial, 2 * (2 * config.layers + 1));
}

TEST(FlatBucket, ParametersBeginAtAGrain) {
  const FlatBucket bucket = lay_out(std::vector<std::int64_t>{1, 64, 33}, 1);
  ASSERT_EQ(bucket.places.size(), 3U);
  EXPECT_EQ(bucket.places[0].end, 1);
  EXPECT_EQ(bucket.places[1].begin, 32);
  EXPECT_EQ(bucket.places[2].begin, 96);
  EXPECT_EQ(bucket.places[2].end, 129);
  EXPECT_EQ(bucket.elems, 160);
}

TEST(FlatBucket, ShardsAreEqualAndEndAtAGrain) {
  for (std::int32_t shards = 1; shards <= 9; ++shards) {
    const FlatBucket bucket = lay_out(std::vector<std::int64_t>{1000, 7}, shards);
    EXPECT_LT(bucket.elems - 1031, shards * kFlatGrain);
    std::int64_t next = 0;
    for (std::int32_t shard = 0; shard < shards; ++shard) {
      const FlatRange range = bucket.shard(shards, shard);
      EXPECT_EQ(range.begin, next);
      EXPECT_EQ(range.count() % kFlatGrain, 0);
      next = range.end;
    }
    EXPECT_EQ(next, bucket.elems);
  }
}

TEST(FlatBucket, RangesHaveInCommonWhatBothHold) {
  EXPECT_EQ(common_of({0, 10}, {5, 20}).count(), 5);
  EXPECT_TRUE(common_of({0, 10}, {10, 20}).empty());
  EXPECT_TRUE(common_of({0, 10}, {15, 20}).empty());
}

}  // namespace
}  // namespace lockstep::workload
