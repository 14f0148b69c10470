#include "trainer/checkpoint/hugging_face_config.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "core/folder_for_tests.h"

namespace lockstep::trainer {
namespace {

class ConfigBeside : public testing::Test {
 protected:
  std::string refusal(const std::string& config, const workload::Model& model) const {
    std::ofstream(folder_ / "config.json") << config;
    try {
      check_config_beside(folder_ / "model.safetensors", model);
    } catch (const core::Error& error) {
      EXPECT_EQ(error.failure(), core::Failure::usage);
      return error.what();
    }
    return "";
  }
  std::string refused(const std::string& why) const { return folder_ / "config.json" + ": " + why; }

  core::TemporaryFolder folder_;
};

// As Meta's Llama 3 8B has it, with what is of no account here.
constexpr const char* kLlama3 =
    R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "hidden_act": "silu",
  "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": null,
  "rope_theta": 500000.0, "tie_word_embeddings": false, "vocab_size": 128256})";

TEST_F(ConfigBeside, OfTheSameModelIsFineAndOfAnotherIsRefused) {
  workload::Model model = workload::parse_model("llama3-8b");
  EXPECT_EQ(refusal(kLlama3, model), "");
  model.rope_theta = 10000;
  EXPECT_EQ(refusal(kLlama3, model),
            refused("rope_theta is 500000.0, the model's is 10000; allowed: weights of the same model"));
  EXPECT_NE(refusal(kLlama3, workload::parse_model("llama2-7b")).find("num_key_value_heads is 8, the model's is 32"),
            std::string::npos);
}

TEST_F(ConfigBeside, WhatIsLeftOutIsTransformersDefault) {
  const workload::Model model = workload::parse_model("llama2-7b");
  EXPECT_EQ(refusal(R"({"rms_norm_eps": 1e-5, "num_key_value_heads": null})", model), "");
  EXPECT_NE(refusal("{}", model).find("rms_norm_eps is 1e-06, the model's is 1e-05"), std::string::npos);
  EXPECT_NE(refusal(R"({"rms_norm_eps": 1e-5, "rope_scaling": {"factor": 8.0}})", model).find("rope_scaling is {"),
            std::string::npos);
  EXPECT_EQ(refusal("{}", workload::parse_model("gpt2-124m")), "");
  EXPECT_NE(refusal("{}", workload::parse_model("gpt2-355m")).find("n_head is 12, the model's is 16"),
            std::string::npos);
}

TEST_F(ConfigBeside, RotaryPositionsOfVersionFive) {
  const workload::Model model = workload::parse_model("llama2-7b,rope_theta=500000");
  const auto config = [](const char* type) {
    return std::string(R"({"rms_norm_eps": 1e-5, "rope_parameters": {"rope_theta": 500000.0, "rope_type": ")") + type +
           "\"}}";
  };
  EXPECT_EQ(refusal(config("default"), model), "");
  EXPECT_NE(refusal(config("llama3"), model).find("rope_scaling is {"), std::string::npos);
  EXPECT_NE(refusal(config("default"), workload::parse_model("llama2-7b")).find("rope_theta is 500000.0"),
            std::string::npos);
}

TEST_F(ConfigBeside, ScaledRotaryPositionsOfLlama31) {
  const auto config = [](const char* field, const char* more) {
    return std::string(R"({"rms_norm_eps": 1e-5, "num_key_value_heads": 8, "rope_theta": 500000.0, ")") + field +
           R"(": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_type": "llama3", )" + more +
           R"("original_max_position_embeddings": 8192}})";
  };
  const workload::Model model = workload::parse_model("llama3.1-8b");
  EXPECT_EQ(refusal(config("rope_scaling", ""), model), "");
  EXPECT_EQ(refusal(config("rope_parameters", R"("rope_theta": 500000.0, )"), model), "");
  EXPECT_NE(refusal(config("rope_scaling", ""), workload::parse_model("llama3-8b")).find("the model's is null"),
            std::string::npos);
  EXPECT_NE(
      refusal(config("rope_scaling", ""), workload::parse_model("llama3.1-8b,rope_factor=32")).find("\"factor\":32"),
      std::string::npos);
  EXPECT_NE(refusal(kLlama3, model).find("rope_scaling is null"), std::string::npos);
}

TEST_F(ConfigBeside, NoneAndBrokenOnes) {
  EXPECT_NO_THROW(check_config_beside(folder_ / "model.safetensors", workload::parse_model("llama2-7b")));
  EXPECT_EQ(refusal("{", workload::parse_model("nano")), folder_ / "config.json" + " is not a JSON object");
}

}  // namespace
}  // namespace lockstep::trainer
