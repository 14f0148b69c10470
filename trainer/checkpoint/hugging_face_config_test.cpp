// The union of the settings of transformers' configuration classes (5.24: Llama, Mistral, Qwen 2 and 3, Gemma 1 to 3,
// GPT-2, Granite, OLMo, StableLM, Phi, GPT-NeoX, GPT-J, GPT-Neo, GPT-BigCode, Falcon, BLOOM, MPT, OPT, Cohere,
// Starcoder 2, Mixtral, DeepSeek, Llama 4, SmolLM 3, Nemotron, gpt-oss, MiniMax, LFM 2 and XGLM): each is taken,
// refused or noted.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "testing/core/fixtures.h"
#include "testing/core/refusal.h"
#include "trainer/checkpoint/hugging_face.h"

namespace lockstep::trainer {
namespace {

using nlohmann::json;

const std::string kLlamaModel =
    "layers=2,hidden=32,heads=4,kv_heads=2,vocabulary=256,sequence=8,ffn_hidden=64,dropout=no,gated=yes,biases=no,"
    "learned_positions=no,norm=rms,tied_embeddings=no";
const std::string kGpt2Model = "layers=2,hidden=32,heads=4,vocabulary=256,sequence=8,positions=16,dropout=no";

json llama_config() {
  return {{"model_type", "llama"},       {"architectures", {"LlamaForCausalLM"}},
          {"num_hidden_layers", 2},      {"num_attention_heads", 4},
          {"num_key_value_heads", 2},    {"rms_norm_eps", 1e-5},
          {"max_position_embeddings", 8}};
}
json gpt2_config() {
  return {{"model_type", "gpt2"}, {"architectures", {"GPT2LMHeadModel"}}, {"n_layer", 2}, {"n_head", 4}};
}

enum class Fate { taken, refused, noted };

class ConfigUnion : public testing::Test {
 protected:
  ConfigFindings found(const std::string& model, const json& config) const {
    std::ofstream(folder_ / "config.json") << config;
    return config_for(folder_ / "model.safetensors", workload::parse_model(model));
  }
  // Each setting of `names` alone, with this value, has this fate, and is named.
  void expect(Fate fate, const std::string& names, const std::string& value, const std::string& model,
              json base) const {
    std::istringstream in(names);
    for (std::string name; in >> name;) {
      json config = base;
      config[name] = json::parse(value);
      const ConfigFindings findings = found(model, config);
      EXPECT_EQ(findings.problems.size(), fate == Fate::refused ? 1 : 0) << name << " " << value;
      EXPECT_EQ(findings.unknown, fate == Fate::noted ? std::vector{name} : std::vector<std::string>()) << name;
      const std::string named = name == "rope_parameters" ? "rope_scaling is " : name + " is ";
      for (const std::string& problem : findings.problems) EXPECT_EQ(problem.rfind(named, 0), 0U) << problem;
    }
  }
  void expect_llama(Fate fate, const std::string& names, const std::string& value) const {
    expect(fate, names, value, kLlamaModel, llama_config());
  }
  void expect_gpt2(Fate fate, const std::string& names, const std::string& value) const {
    expect(fate, names, value, kGpt2Model, gpt2_config());
  }

  core::TemporaryFolder folder_;
};

const std::string kSwitches =
    "attention_out_bias qkv_bias use_qkv_bias use_bias bias enable_bias conv_bias qk_layernorm use_qk_norm alibi "
    "use_parallel_residual parallel_attn new_decoder_architecture multi_query add_cross_attention is_encoder_decoder "
    "apply_residual_connection_post_layernorm use_bidirectional_attention attn_temperature_tuning rope_interleave "
    "scale_embedding scale_attn_by_inverse_layer_idx _remove_final_layer_norm tie_word_embeddings attention_bias "
    "mlp_bias norm_topk_prob no_bias learned_pos_emb";
const std::string kNumbers =
    "attn_logit_softcapping final_logit_softcapping clip_qkv swiglu_limit swiglu_alpha attn_scale floor_scale "
    "kv_lora_rank q_lora_rank qk_head_dim qk_nope_head_dim qk_rope_head_dim num_ln_in_parallel_attn num_kv_heads "
    "num_nextn_predict_layers no_rope_layer_interval sliding_window_pattern _sliding_window_pattern attention_heads "
    "routed_scaling_factor word_embed_proj_dim num_experts_per_tok interleave_moe_layer_step ffn_dim "
    "block_ffn_dim_multiplier full_attn_alpha_factor full_attn_beta_factor linear_attn_alpha_factor "
    "linear_attn_beta_factor mlp_alpha_factor mlp_beta_factor";
const std::string kOnes =
    "embedding_multiplier residual_multiplier logits_scaling logit_scale lm_head_multiplier partial_rotary_factor "
    "rotary_pct embedding_fraction";
const std::string kWindows = "sliding_window attention_chunk_size window_size";
const std::string kHeadSizes = "query_pre_attn_scalar rotary_dim kv_channels v_head_dim";
const std::string kExperts = "num_experts num_local_experts n_routed_experts n_shared_experts";
const std::string kOn = "scale_attn_weights do_layer_norm_before layer_norm_elementwise_affine is_causal";

TEST_F(ConfigUnion, AnotherFunctionIsRefused) {
  expect_llama(Fate::refused, kSwitches, "true");
  expect_llama(Fate::refused, kOn, "false");
  for (const std::string& names : {kNumbers, kOnes, kWindows, kHeadSizes, kExperts}) {
    expect_llama(Fate::refused, names, "3");
    expect_gpt2(Fate::refused, names, "3");
  }
  expect_llama(Fate::refused, "attention_multiplier head_dim rope_theta rms_norm_eps layer_norm_eps norm_eps", "3");
  expect_llama(Fate::refused, "num_hidden_layers num_attention_heads num_key_value_heads", "3");
  expect_llama(Fate::refused, "model_type hidden_act hidden_activation activation norm_type activation_function",
               R"("relu")");
  expect_llama(Fate::refused, "architectures", R"(["LlamaForCausalLM", "Qwen2ForCausalLM"])");
  expect_llama(Fate::refused, "layer_types", R"(["full_attention", "chunked_attention"])");
  expect_llama(Fate::refused, "no_rope_layers", "[1, 0]");
  expect_llama(Fate::refused, "attention_types attention_layers mlp_only_layers moe_layers full_attn_idxs", "[1]");
  expect_llama(Fate::refused, "quantization_config compression_config pruned_heads attn_config ffn_config",
               R"({"bits": 4})");
  expect_gpt2(Fate::refused, kOn, "false");
  expect_gpt2(Fate::refused, "add_cross_attention scale_attn_by_inverse_layer_idx", "true");
  expect_gpt2(Fate::refused, "tie_word_embeddings", "false");
  expect_gpt2(Fate::refused, "n_layer n_head num_hidden_layers num_attention_heads layer_norm_epsilon", "3");
  expect_gpt2(Fate::refused, "model_type activation_function", R"("gelu")");
}

TEST_F(ConfigUnion, RotaryPositionsOfAnotherTypeAreRefusedAndIdleOnesTaken) {
  for (const char* const idle : {"null", R"({"rope_type": "default"})", R"({"type": "linear", "factor": 1.0})",
                                 R"({"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0})",
                                 R"({"type": "dynamic", "factor": 4.0})"}) {  // below max_position_embeddings
    expect_llama(Fate::taken, "rope_scaling rope_parameters", idle);
  }
  for (const char* const other :
       {R"({"type": "linear", "factor": 2.0})", R"({"rope_type": "yarn", "factor": 4.0})",
        R"({"rope_type": "longrope", "short_factor": [1], "long_factor": [2]})", R"("linear")",
        R"({"rope_type": "default", "mrope_section": [1, 1, 2]})", R"({"full_attention": {"rope_type": "default"}})"}) {
    expect_llama(Fate::refused, "rope_scaling rope_parameters", other);
  }
  json config = llama_config();
  config["rope_parameters"] = {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}};
  EXPECT_EQ(found(kLlamaModel, config).problems,
            std::vector<std::string>{"partial_rotary_factor is 0.5, the trainer runs [null,1]"});
}

TEST_F(ConfigUnion, ValuesThatLeaveTheFunctionAreTaken) {
  for (const std::string& names : {kSwitches, kNumbers, kOnes, kWindows, kHeadSizes, kExperts}) {
    expect_llama(Fate::taken, names, "null");
  }
  expect_llama(Fate::taken, kSwitches, "false");
  expect_llama(Fate::taken, kOn, "true");
  expect_llama(Fate::taken, kOnes, "1.0");
  expect_llama(Fate::taken, kWindows + " " + kHeadSizes, "8");
  expect_llama(Fate::taken, kExperts, "0");
  expect_llama(Fate::taken, "attention_multiplier", "0.35355339");  // 8 to the power of -1/2
  expect_llama(Fate::taken, "layer_types", R"(["full_attention", "sliding_attention"])");
  expect_llama(Fate::taken, "no_rope_layers", "[1, 1]");
  expect_llama(Fate::taken, "mlp_only_layers pruned_heads", "[]");
  expect_gpt2(Fate::taken, "activation_function", R"("gelu_pytorch_tanh")");
  expect_gpt2(Fate::taken, "reorder_and_upcast_attn scale_attn_weights tie_word_embeddings", "true");
}

TEST_F(ConfigUnion, WhatHasNoEffectIsTakenAndWhatIsUnknownIsNoted) {
  const std::string no_effect =
      "_name_or_path _attn_implementation transformers_version dtype torch_dtype use_cache return_dict problem_type "
      "output_attentions output_hidden_states output_router_logits bos_token_id eos_token_id pad_token_id id2label "
      "label2id decoder_start_token_id chunk_size_feed_forward initializer_range init_std init_device is_decoder "
      "vocab_size hidden_size intermediate_size n_embd n_inner n_positions n_ctx max_position_embeddings "
      "original_max_position_embeddings attention_dropout attn_pdrop resid_pdrop embd_pdrop hidden_dropout "
      "residual_dropout embedding_dropout activation_dropout classifier_dropout layerdrop dropout emb_pdrop "
      "attention_softmax_in_fp32 scale_attention_softmax_in_fp32 reorder_and_upcast_attn pretraining_tp summary_type "
      "summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout max_window_layers "
      "use_sliding_window";
  expect_llama(Fate::taken, no_effect, "16");
  expect_gpt2(Fate::taken, no_effect, "16");
  const std::string unknown =
      "router_aux_loss_coef router_jitter_noise decoder_sparse_step block_size conv_L_cache expansion_ratio "
      "lambda_std_dev n_group topk_group slow_but_exact d_model n_heads n_layers num_layers max_seq_len "
      "a_setting_of_next_year";
  expect_llama(Fate::noted, unknown, "16");
  expect_llama(Fate::taken, unknown, "null");
}

// configuration_mistral.py has a window of 4,096 tokens and 8 key-value heads if they are left out.
TEST_F(ConfigUnion, WindowsCountAgainstTheSequence) {
  json config = llama_config();
  config["sliding_window"] = 4;
  const std::vector<std::string> refused{"sliding_window is 4, below the 8 tokens of a sequence"};
  EXPECT_EQ(found(kLlamaModel, config).problems, refused);
  config["use_sliding_window"] = false;
  EXPECT_TRUE(found(kLlamaModel, config).problems.empty());
  config["model_type"] = "mistral";  // its class has no such switch
  EXPECT_EQ(found(kLlamaModel, config).problems, refused);
  config.erase("sliding_window");
  EXPECT_TRUE(found(kLlamaModel, config).problems.empty());
  std::string longer = kLlamaModel;
  longer.replace(longer.find("sequence=8"), 10, "sequence=4097");
  EXPECT_EQ(found(longer, config).problems.size(), 1U);
  config.erase("num_key_value_heads");
  EXPECT_EQ(found(kLlamaModel, config).problems,
            std::vector<std::string>{"num_key_value_heads is 8, the model's is 2"});
}

class ConfigFile : public testing::Test {
 protected:
  std::string refusal(const std::string& config, const workload::Model& model) const {
    std::ofstream(folder_ / "config.json") << config;
    std::string all;
    const std::string refused = core::refusal_of([&] {
      const ConfigFindings found = config_for(folder_ / "model.safetensors", model);
      for (const std::string& problem : found.problems) all += problem + "\n";
      for (const std::string& name : found.unknown) all += "unknown: " + name + "\n";
    });
    return all + refused;
  }
  core::TemporaryFolder folder_;
};

// As in Meta's Llama 3 8B, with fields that do not matter here.
constexpr const char* kLlama3 =
    R"({"architectures": ["LlamaForCausalLM"], "attention_bias": false, "hidden_act": "silu",
  "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_scaling": null,
  "rope_theta": 500000.0, "tie_word_embeddings": false, "vocab_size": 128256})";

TEST_F(ConfigFile, OfTheSameModelIsFineAndOfAnotherIsRefused) {
  workload::Model model = workload::parse_model("llama3-8b");
  EXPECT_EQ(refusal(kLlama3, model), "");
  model.rope_theta = 10000;
  EXPECT_EQ(refusal(kLlama3, model), "rope_theta is 500000.0, the model's is 10000\n");
  EXPECT_NE(refusal(kLlama3, workload::parse_model("llama2-7b")).find("num_key_value_heads is 8, the model's is 32"),
            std::string::npos);
}

TEST_F(ConfigFile, WhatIsLeftOutIsTransformersDefault) {
  const workload::Model model = workload::parse_model("llama2-7b");
  EXPECT_EQ(refusal(R"({"rms_norm_eps": 1e-5, "num_key_value_heads": null})", model), "");
  EXPECT_NE(refusal("{}", model).find("rms_norm_eps is 1e-06, the model's is 1e-05"), std::string::npos);
  EXPECT_NE(refusal(R"({"rms_norm_eps": 1e-5, "rope_scaling": {"factor": 8.0}})", model).find("rope_scaling is {"),
            std::string::npos);
  EXPECT_EQ(refusal("{}", workload::parse_model("gpt2-124m")), "");
  EXPECT_NE(refusal("{}", workload::parse_model("gpt2-355m")).find("n_head is 12, the model's is 16"),
            std::string::npos);
}

TEST_F(ConfigFile, RotaryPositionsOfVersionFive) {
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

TEST_F(ConfigFile, ScaledRotaryPositionsOfLlama31) {
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

TEST_F(ConfigFile, NoneAndBrokenOnes) {
  EXPECT_NO_THROW(config_for(folder_ / "model.safetensors", workload::parse_model("llama2-7b")));
  EXPECT_EQ(refusal("[]", workload::parse_model("nano")), folder_ / "config.json" + " is not a JSON object");
  EXPECT_EQ(refusal("{", workload::parse_model("nano")).rfind(folder_ / "config.json" + ": not JSON: ", 0), 0U);
}

}  // namespace
}  // namespace lockstep::trainer
