#include "workload/model.h"

#include <gtest/gtest.h>

#include "core/error.h"

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

// Narayanan et al. 2021, equation 2, which leaves out the last norm.
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
// token meets 6, and two shared ones; 16.4 billion parameters, 2.8 of them active. Its first layer has a dense MLP of
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
  try {
    parse_model(text);
  } catch (const core::Error& error) {
    return error.what();
  }
  return "";
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
  EXPECT_EQ(refusal_of("hidden=0"), "model: hidden=0: out of range; allowed: whole numbers from 1 to 10000000");
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
  EXPECT_NE(refusal_of("gpt3-175b,layer=3").find("no such field; allowed: layers hidden"), std::string::npos);
  EXPECT_NE(refusal_of("").find("is not known"), std::string::npos);
}

TEST(ModelText, KnowsEveryName) {
  for (const std::string& name : model_names()) EXPECT_EQ(why_invalid(parse_model(name)), "") << name;
}

}  // namespace
}  // namespace lockstep::workload
