#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include <fmt/core.h>

#include "core/error.h"
#include "core/record_json.h"
#include "trainer/checkpoint/hugging_face.h"

namespace lockstep::trainer {
namespace {

using nlohmann::json;

// Settings of one meaning. Names, here and below, are separated by blanks.
struct Setting {
  const char* names;
  json allowed;          // the model's value, or an array of values that leave the function as it is
  json usual = nullptr;  // transformers' default, of a setting that is compared with the model's
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

// After configuration_gpt2.py, configuration_llama.py and configuration_mistral.py of transformers.
std::vector<Setting> class_settings(const workload::Model& model, bool mistral) {
  if (model.learned_positions) {
    return {{"model_type", {"gpt2", nullptr}},
            {"architectures", {"GPT2LMHeadModel", "GPT2Model", nullptr}},
            {"n_layer num_hidden_layers", model.layers, model.layers},
            {"n_head", model.heads, 12},
            {"num_attention_heads", model.heads, model.heads},
            {"layer_norm_epsilon", kEpsilon, 1e-5},
            {"activation_function", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"}},
            {"tie_word_embeddings", model.tied_embeddings, true}};
  }
  return {{"model_type", {"llama", "mistral", nullptr}},
          {"architectures", {"LlamaForCausalLM", "LlamaModel", "MistralForCausalLM", "MistralModel", nullptr}},
          {"num_hidden_layers", model.layers, model.layers},
          {"num_attention_heads", model.heads, 32},
          {"num_key_value_heads", model.kv_heads, mistral ? 8 : model.heads},
          {"head_dim", model.head_size, model.hidden / model.heads},
          {"rope_theta", model.rope_theta, 10000},
          {"rope_scaling", rope_scaling_of(model)},
          {"rms_norm_eps", kEpsilon, 1e-6},
          {"hidden_act hidden_activation", {"silu", "swish", nullptr}},
          {"attention_bias mlp_bias", model.biases, false},
          {"tie_word_embeddings", model.tied_embeddings, false}};
}

// Settings of any class, such as Granite's, Gemma's, Phi's and GPT-NeoX's, with a value other than null and false that
// leaves the function as it is.
std::vector<Setting> other_settings(const workload::Model& model) {
  return {{"scale_attn_weights is_causal do_layer_norm_before layer_norm_elementwise_affine", json::array({true})},
          {"layer_norm_eps norm_eps norm_epsilon layernorm_epsilon", {nullptr, kEpsilon}},
          {"partial_rotary_factor rotary_pct rope_pct embedding_multiplier residual_multiplier logits_scaling "
           "logit_scale lm_head_multiplier scale_emb embedding_fraction no_rope_layers",
           {nullptr, 1}},
          {"attention_multiplier", {nullptr, 1 / std::sqrt(static_cast<double>(model.head_size))}},
          {"query_pre_attn_scalar rotary_dim kv_channels v_head_dim", {nullptr, model.head_size}},
          {"layer_types", {nullptr, "full_attention", "sliding_attention"}},
          {"num_experts num_local_experts n_routed_experts n_shared_experts", {nullptr, 0}}};
}

// Numbers of tokens to which a token attends. null: all.
constexpr const char* kWindows = "sliding_window attention_chunk_size window_size attention_window";

// Parts of names of settings that have no effect on the function of trained weights: sizes, which the weights show,
// too; dropout, which the run decides; tokens, number formats, versions, initial values, what a call returns.
constexpr const char* kNoEffect =
    "vocab_size hidden_size n_embd intermediate_size n_inner n_positions n_ctx position_embeddings drop _token_id "
    "dtype bfloat16 output_attentions output_hidden_states output_scores output_router return_dict label summary_ "
    "initializer init_std init_device use_cache version name_or_path _commit_hash tokenizer_class auto_map flash "
    "attn_implementation fp32 upcast torchscript task_specific problem_type chunk_size_feed_forward is_decoder "
    "tie_encoder gradient_checkpointing pretraining_tp max_window_layers use_sliding_window";

// Parts of names of settings, of any class of transformers, that do have an effect: they may only be off. All others
// are unknown.
constexpr const char* kEffect =
    "bias norm rope rotary alibi window softcap soft_cap multiplier scaling scale scalar logit residual parallel "
    "expert moe lora_rank clip attn attention layer_types quantization compression interleave causal activation act_fn "
    "mlp ffn kv qk sink query mup encoder pruned embed positions nextn swiglu head_dim pos_emb new_decoder";

std::vector<std::string> words_of(const char* names) {
  std::istringstream in(names);
  return {std::istream_iterator<std::string>(in), {}};
}
bool has_part(const std::string& name, const char* parts) {
  const std::vector<std::string> all = words_of(parts);
  return std::any_of(all.begin(), all.end(), [&](const std::string& part) { return name.find(part) != name.npos; });
}

bool same(const json& a, const json& b) {
  if (!a.is_number() || !b.is_number()) return a == b;
  return std::fabs(a.get<double>() - b.get<double>()) <= 1e-6 * std::fabs(b.get<double>());
}

// A list is allowed if each of its values is.
bool is_among(const json& value, const json& allowed) {
  const auto one_of = [&](const json& a) {
    return std::any_of(allowed.begin(), allowed.end(), [&](const json& b) { return same(a, b); });
  };
  return value.is_array() ? std::all_of(value.begin(), value.end(), one_of) : one_of(value);
}

// Rotary positions are in one object since version 5 of transformers, and were in rope_scaling and settings of their
// own before. Puts them into the older form, with null for a type that scales nothing.
void flatten_rope(json& config, const workload::Model& model) {
  json rope = config.value("rope_scaling", json());
  if (rope.empty()) rope = config.value("rope_parameters", json());
  config.erase("rope_parameters");
  config["rope_scaling"] = rope;
  if (!rope.is_object()) return;
  for (const char* const name : {"rope_theta", "partial_rotary_factor"}) {
    if (rope.contains(name)) config[name] = rope.at(name);
    rope.erase(name);
  }
  const json type = rope.value("rope_type", rope.value("type", json("default")));
  rope.erase("type");
  rope["rope_type"] = type;
  const json longest = config.value("max_position_embeddings", json(0));
  const bool dynamic = type == "dynamic";  // scales sequences that are longer than this
  const bool idle = same(rope.value("factor", json(1)), 1) ||
                    (dynamic && longest.is_number() && longest.get<double>() >= static_cast<double>(model.sequence));
  if (idle && (dynamic || type == "default" || type == "linear")) {
    for (const char* const name : {"rope_type", "factor", "original_max_position_embeddings"}) rope.erase(name);
  }
  config["rope_scaling"] = rope.empty() ? json() : rope;
}

}  // namespace

ConfigFindings config_for(const std::string& weights_file, const workload::Model& model) {
  ConfigFindings findings;
  findings.file = (std::filesystem::path(weights_file).parent_path() / "config.json").string();
  if (!std::filesystem::exists(findings.file)) return findings;
  json config = core::parse_json(read_text(findings.file), findings.file);
  if (!config.is_object()) throw core::usage_error(findings.file + " is not a JSON object");
  if (!model.learned_positions) flatten_rope(config, model);
  const bool mistral = config.value("model_type", json()) == "mistral";
  if (mistral && !config.contains("sliding_window")) config["sliding_window"] = 4096;  // configuration_mistral.py
  if (!mistral && config.value("use_sliding_window", json()) == false) config.erase("sliding_window");

  const auto refuse = [&](const std::string& name, const json& value, const std::string& why) {
    constexpr std::size_t kMost = 120;  // characters: a list may be long
    findings.problems.push_back(name + " is " + value.dump().substr(0, kMost) + why);
  };
  std::set<std::string> known;
  std::vector<Setting> settings = class_settings(model, mistral);
  for (Setting& setting : other_settings(model)) settings.push_back(std::move(setting));
  for (const Setting& setting : settings) {
    for (const std::string& name : words_of(setting.names)) {
      known.insert(name);
      const auto found = config.find(name);
      const bool missing = found == config.end() || (found->is_null() && !setting.usual.is_null());
      if (setting.allowed.is_array()) {
        if (found != config.end() && !is_among(*found, setting.allowed))
          refuse(name, *found, ", the trainer runs " + setting.allowed.dump());
      } else if (const json& value = missing ? setting.usual : *found; !same(value, setting.allowed)) {
        refuse(name, value, ", the model's is " + setting.allowed.dump());
      }
    }
  }
  for (const std::string& name : words_of(kWindows)) {
    known.insert(name);
    const json value = config.value(name, json());
    if (value.is_null() || (value.is_number() && value.get<double>() >= static_cast<double>(model.sequence))) continue;
    refuse(name, value, fmt::format(", below the {} tokens of a sequence", model.sequence));
  }
  for (const auto& [name, value] : config.items()) {
    if (value.empty() || value == false || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
        known.count(name) != 0 || has_part(name, kNoEffect))
      continue;
    if (!has_part(name, kEffect)) {
      findings.unknown.push_back(name);
    } else {
      refuse(name, value, ", the trainer runs null or false");
    }
  }
  return findings;
}

}  // namespace lockstep::trainer
