#include "trainer/checkpoint/hugging_face_config.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/error.h"

namespace lockstep::trainer {
namespace {

using nlohmann::json;

// A field of config.json: its value for this model, and the default that transformers uses if it is missing.
struct ConfigField {
  const char* name;
  json wanted;
  json usual;
};

constexpr double kEpsilon = 1e-5;  // kernels::NormForward's

// Llama 3.1's, in the form of config.json.
json rope_scaling_of(const workload::Model& model) {
  if (model.rope_factor == 1) return nullptr;
  return {{"factor", model.rope_factor},
          {"high_freq_factor", model.rope_high_freq_factor},
          {"low_freq_factor", model.rope_low_freq_factor},
          {"original_max_position_embeddings", model.rope_original_positions},
          {"rope_type", "llama3"}};
}

// Defaults are from configuration_gpt2.py and configuration_llama.py of transformers.
std::vector<ConfigField> fields_of(const workload::Model& model) {
  if (model.learned_positions) {
    return {{"n_head", model.heads, 12},
            {"layer_norm_epsilon", kEpsilon, 1e-5},
            {"activation_function", "gelu_new", "gelu_new"},
            {"scale_attn_by_inverse_layer_idx", false, false}};
  }
  return {{"num_attention_heads", model.heads, 32},
          {"num_key_value_heads", model.kv_heads, model.heads},
          {"head_dim", model.head_size, model.hidden / model.heads},
          {"rope_theta", model.rope_theta, 10000},
          {"rope_scaling", rope_scaling_of(model), nullptr},
          {"rms_norm_eps", kEpsilon, 1e-6},
          {"hidden_act", "silu", "silu"},
          {"attention_bias", false, false},
          {"mlp_bias", false, false},
          {"tie_word_embeddings", model.tied_embeddings, false}};
}

// Version 5 of transformers has rotary positions in an object of their own, with the type "default" where rope_scaling
// used to be null.
json flattened(json config) {
  json rope = config.value("rope_parameters", json());
  if (!rope.is_object()) return config;
  if (rope.contains("rope_theta")) config["rope_theta"] = rope.at("rope_theta");
  rope.erase("rope_theta");
  if (rope.value("rope_type", "default") != "default") config["rope_scaling"] = rope;
  return config;
}

bool same(const json& a, const json& b) {
  if (!a.is_number() || !b.is_number()) return a == b;
  return std::fabs(a.get<double>() - b.get<double>()) <= 1e-9 * std::fabs(b.get<double>());
}

}  // namespace

void check_config_beside(const std::string& weights_file, const workload::Model& model) {
  const std::filesystem::path file = std::filesystem::path(weights_file).parent_path() / "config.json";
  std::ifstream in(file, std::ios::binary);
  if (!in) return;
  json config = json::parse(in, nullptr, false);
  if (!config.is_object()) throw core::usage_error(file.string() + " is not a JSON object");
  config = flattened(std::move(config));
  for (const ConfigField& field : fields_of(model)) {
    const auto found = config.find(field.name);
    // null counts as missing
    const json value = found == config.end() || (found->is_null() && !field.usual.is_null()) ? field.usual : *found;
    if (same(value, field.wanted)) continue;
    throw core::usage_error(file.string() + ": " + field.name + " is " + value.dump() + ", the model's is " +
                            field.wanted.dump() + "; allowed: weights of the same model");
  }
}

}  // namespace lockstep::trainer
