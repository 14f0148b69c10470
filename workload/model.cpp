#include "workload/model.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/options.h"

namespace lockstep::workload {
namespace {

using core::Field;
using core::OptionText;

constexpr std::int64_t kMost = 1'000'000'000;
constexpr std::array<std::string_view, 2> kNorms{"layer", "rms"};
constexpr std::array<std::string_view, 2> kRopePairs{"halves", "neighbours"};
constexpr std::array<std::string_view, 2> kRouters{"softmax", "sigmoid"};

const std::array kFields{
    Field<Model>{"layers", "1 or more", [](Model& m, const OptionText& v) { m.layers = v.integer(1, 100'000); }},
    Field<Model>{"hidden", "1 or more", [](Model& m, const OptionText& v) { m.hidden = v.integer(1, 10'000'000); }},
    Field<Model>{"heads", "1 or more", [](Model& m, const OptionText& v) { m.heads = v.integer(1, 1'000'000); }},
    Field<Model>{"kv_heads", "1 or more; heads",
                 [](Model& m, const OptionText& v) { m.kv_heads = v.integer(1, 1'000'000); }},
    Field<Model>{"head_size", "1 or more; hidden / heads",
                 [](Model& m, const OptionText& v) { m.head_size = v.integer(1, 1'000'000); }},
    Field<Model>{"ffn_hidden", "1 or more; 4 hidden",
                 [](Model& m, const OptionText& v) { m.ffn_hidden = v.integer(1, 100'000'000); }},
    Field<Model>{"vocabulary", "1 or more; 51200",
                 [](Model& m, const OptionText& v) { m.vocabulary = v.integer(1, kMost); }},
    Field<Model>{"sequence", "1 or more; 2048",
                 [](Model& m, const OptionText& v) { m.sequence = v.integer(1, kMost); }},
    Field<Model>{"positions", "rows of learned positions, at least sequence; sequence",
                 [](Model& m, const OptionText& v) { m.positions = v.integer(1, kMost); }},
    Field<Model>{"experts", "0 or more; 0", [](Model& m, const OptionText& v) { m.experts = v.integer(0, 100'000); }},
    Field<Model>{"experts_per_token", "1 or more; 2 with experts",
                 [](Model& m, const OptionText& v) { m.experts_per_token = v.integer(1, 100'000); }},
    Field<Model>{"shared_hidden", "total width of the shared experts, which every token uses; 0 (none)",
                 [](Model& m, const OptionText& v) { m.shared_hidden = v.integer(0, 100'000'000); }},
    Field<Model>{"expert_groups", "groups of equally many experts, e.g. one per node; 1",
                 [](Model& m, const OptionText& v) { m.expert_groups = v.integer(1, 32); }},
    Field<Model>{"groups_per_token", "most groups from which a token has experts; expert_groups",
                 [](Model& m, const OptionText& v) { m.groups_per_token = v.integer(1, 32); }},
    Field<Model>{"capacity_factor",
                 "rows that an expert accepts from a rank over an even share; 0: no limit (dropless); 0",
                 [](Model& m, const OptionText& v) { m.capacity_factor = v.number_from(0); }},
    Field<Model>{"balance_loss", "weight of the router's balance loss; 0",
                 [](Model& m, const OptionText& v) { m.balance_loss = v.number_from(0); }},
    Field<Model>{"z_loss", "weight of the router's z loss; 0",
                 [](Model& m, const OptionText& v) { m.z_loss = v.number_from(0); }},
    Field<Model>{"bias_rate", "loss-free balancing: change of an expert's bias per step; 0",
                 [](Model& m, const OptionText& v) { m.bias_rate = v.number_from(0); }},
    Field<Model>{"router", "scores of the experts: softmax sigmoid; softmax",
                 [](Model& m, const OptionText& v) { m.sigmoid_router = v.index_of(kRouters) == 1; }},
    Field<Model>{"normalised_gates", "gates of several chosen experts add up to 1: yes no; yes",
                 [](Model& m, const OptionText& v) { m.normalised_gates = v.yes_or_no(); }},
    Field<Model>{"gated", "SwiGLU instead of GELU: yes no; no",
                 [](Model& m, const OptionText& v) { m.gated = v.yes_or_no(); }},
    Field<Model>{"biases", "linear layers have biases: yes no; yes",
                 [](Model& m, const OptionText& v) { m.biases = v.yes_or_no(); }},
    Field<Model>{"tied_embeddings", "the head uses the embedding's matrix: yes no; yes",
                 [](Model& m, const OptionText& v) { m.tied_embeddings = v.yes_or_no(); }},
    Field<Model>{"learned_positions", "otherwise rotary: yes no; yes",
                 [](Model& m, const OptionText& v) { m.learned_positions = v.yes_or_no(); }},
    Field<Model>{"rope_theta", "base of rotary positions, 2 or more; 10000",
                 [](Model& m, const OptionText& v) { m.rope_theta = v.integer(2, kMost); }},
    Field<Model>{"rope_factor", "Llama 3.1's scaling of rotary positions; 1 (none)",
                 [](Model& m, const OptionText& v) { m.rope_factor = v.integer(1, kMost); }},
    Field<Model>{"rope_low_freq_factor", "with rope_factor; 1",
                 [](Model& m, const OptionText& v) { m.rope_low_freq_factor = v.integer(1, kMost); }},
    Field<Model>{"rope_high_freq_factor", "with rope_factor, above the low one; 4",
                 [](Model& m, const OptionText& v) { m.rope_high_freq_factor = v.integer(2, kMost); }},
    Field<Model>{"rope_original_positions", "with rope_factor; 8192",
                 [](Model& m, const OptionText& v) { m.rope_original_positions = v.integer(1, kMost); }},
    Field<Model>{"rope_pairs", "columns rotated together: halves neighbours; halves",
                 [](Model& m, const OptionText& v) { m.rope_pairs = static_cast<RopePairs>(v.index_of(kRopePairs)); }},
    Field<Model>{"dropout", "yes no; yes", [](Model& m, const OptionText& v) { m.dropout = v.yes_or_no(); }},
    Field<Model>{"norm", "layer rms; layer",
                 [](Model& m, const OptionText& v) { m.norm = static_cast<Norm>(v.index_of(kNorms)); }},
};

Model model_named(std::string_view name) {
  std::vector<std::string_view> names;
  for (const KnownModel& known : known_models()) {
    if (known.name == name) return model_of(known);
    names.push_back(known.name);
  }
  throw core::unknown_name("model: '" + std::string(name) + "' is not known", name, names,
                           ", or numbers as in hidden=4096,layers=32,heads=32");
}

// Fills in default values of fields that are not given.
void fill_in(Model& model) {
  const auto usual = [](std::int64_t& field, std::int64_t value) { field = field == 0 ? value : field; };
  usual(model.kv_heads, model.heads);
  if (model.heads > 0) usual(model.head_size, model.hidden / model.heads);
  usual(model.ffn_hidden, 4 * model.hidden);
  usual(model.vocabulary, 51200);
  usual(model.sequence, 2048);
  usual(model.positions, model.sequence);
  if (model.experts > 0) usual(model.experts_per_token, std::min<std::int64_t>(2, model.experts));
}

std::string groups_conflict(const Model& model) {
  if (model.bias_rate > 0 && model.experts == 0) return "bias_rate is above 0; allowed: 0, as the model has no experts";
  if (model.shared_hidden > 0 && model.experts == 0) {
    return "shared_hidden is " + std::to_string(model.shared_hidden) + "; allowed: 0, as the model has no experts";
  }
  const std::string groups = std::to_string(model.expert_groups);
  if (model.expert_groups == 1 && most_groups_of_token(model) == 1) return "";
  if (model.experts == 0) return "expert_groups is " + groups + "; allowed: 1, as the model has no experts";
  if (model.experts % model.expert_groups != 0) {
    return "expert_groups is " + groups + "; allowed: divisors of experts, " + std::to_string(model.experts);
  }
  const std::int64_t of_group = model.experts / model.expert_groups;
  const std::int64_t fewest = (model.experts_per_token + of_group - 1) / of_group;
  if (const std::int64_t most = most_groups_of_token(model); most < fewest || most > model.expert_groups) {
    return "groups_per_token is " + std::to_string(most) + "; allowed: " + std::to_string(fewest) + " to " + groups +
           ", the expert_groups that have experts_per_token";
  }
  return "";
}

std::int64_t norm_parameters(const Model& model) {
  return model.hidden * (model.norm == Norm::layer ? 2 : 1);
}
std::int64_t linear(const Model& model, std::int64_t in, std::int64_t out) {
  return in * out + (model.biases ? out : 0);
}
// Elements of a layer's matrices that a token uses: 2 operations per element.
std::int64_t active_matrices(const Model& model) {
  const std::int64_t queries = model.heads * model.head_size;
  const std::int64_t keys = model.kv_heads * model.head_size;
  const std::int64_t width =
      model.experts > 0 ? model.experts_per_token * model.ffn_hidden + model.shared_hidden : model.ffn_hidden;
  return model.hidden * (2 * queries + 2 * keys) + (model.gated ? 3 : 2) * model.hidden * width +
         model.hidden * model.experts;
}

}  // namespace

Model parse_model(std::string_view text) {
  std::vector<std::string_view> parts = core::split(text, ',');
  Model model;
  if (!core::name_and_value(parts.front()).has_value) {
    model = model_named(parts.front());
    parts.erase(parts.begin());
  }
  // Fields that follow from others follow from the new ones, unless they are given themselves.
  const auto given = [&](std::string_view name) {
    for (const std::string_view part : parts) {
      if (core::name_and_value(part).name == name) return true;
    }
    return false;
  };
  if (given("hidden") || given("heads")) {
    model.head_size = 0;
    if (given("heads")) model.kv_heads = 0;
    if (given("hidden")) model.ffn_hidden = 0;
  }
  core::read_fields<Model>(model, "model", parts, kFields);
  // Shorter sequences do not change a table of positions; longer ones need a longer table.
  if (!given("positions")) model.positions = std::max(model.positions, model.sequence);
  if (model.heads > 0 && model.head_size == 0 && model.hidden % model.heads != 0) {
    throw core::usage_error("model: heads is " + std::to_string(model.heads) + ", and hidden is " +
                            std::to_string(model.hidden) + "; allowed: divisors of hidden, or a head_size");
  }
  fill_in(model);
  if (model.name.empty() || !parts.empty()) model.name = std::string(text);
  if (const std::string reason = why_invalid(model); !reason.empty()) throw core::usage_error("model: " + reason);
  return model;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const KnownModel& known : known_models()) names.emplace_back(known.name);
  return names;
}

std::string title_of(const Model& model) {
  return (model.learned_positions ? "GPT " : "") + model.name;
}

std::vector<std::string> model_fields() {
  std::vector<std::string> fields;
  for (const Field<Model>& field : kFields) fields.push_back(std::string(field.name) + ": " + field.takes);
  return fields;
}

std::int64_t most_groups_of_token(const Model& model) {
  return model.groups_per_token == 0 ? model.expert_groups : model.groups_per_token;
}

std::string why_invalid(const Model& model) {
  for (const auto& [what, value] : {std::pair<const char*, std::int64_t>{"layers", model.layers},
                                    {"hidden", model.hidden},
                                    {"heads", model.heads},
                                    {"kv_heads", model.kv_heads},
                                    {"head_size", model.head_size},
                                    {"ffn_hidden", model.ffn_hidden},
                                    {"vocabulary", model.vocabulary},
                                    {"sequence", model.sequence}}) {
    if (value < 1) return std::string(what) + " is " + std::to_string(value) + "; allowed: at least 1";
  }
  if (model.heads % model.kv_heads != 0) {
    return "kv_heads is " + std::to_string(model.kv_heads) + "; allowed: divisors of heads, " +
           std::to_string(model.heads);
  }
  if (model.learned_positions && model.positions < model.sequence) {
    return "sequence is " + std::to_string(model.sequence) + "; allowed: 1 to " + std::to_string(model.positions) +
           ", the learned positions";
  }
  if (!model.learned_positions && model.head_size % 2 != 0) {
    return "head_size is " + std::to_string(model.head_size) +
           "; allowed: even numbers, as rotary positions turn pairs of columns";
  }
  if (model.rope_low_freq_factor >= model.rope_high_freq_factor) {
    return "rope_low_freq_factor is " + std::to_string(model.rope_low_freq_factor) +
           "; allowed: less than rope_high_freq_factor, " + std::to_string(model.rope_high_freq_factor);
  }
  if (model.experts > 0 && (model.experts_per_token < 1 || model.experts_per_token > model.experts)) {
    return "experts_per_token is " + std::to_string(model.experts_per_token) + "; allowed: 1 to " +
           std::to_string(model.experts);
  }
  return groups_conflict(model);
}

LayerParameters layer_parameters(const Model& model) {
  const std::int64_t queries = model.heads * model.head_size;
  const std::int64_t keys = model.kv_heads * model.head_size;
  const auto mlp = [&](std::int64_t width) {
    return linear(model, model.hidden, width * (model.gated ? 2 : 1)) + linear(model, width, model.hidden);
  };
  LayerParameters found;
  found.attention = linear(model, model.hidden, queries + 2 * keys) + linear(model, queries, model.hidden);
  found.mlp = mlp(model.ffn_hidden);
  found.router = model.hidden * model.experts;
  if (model.shared_hidden > 0) found.shared = mlp(model.shared_hidden);
  found.norms = 2 * norm_parameters(model);
  return found;
}

std::int64_t parameters_of_layer(const Model& model) {
  const LayerParameters layer = layer_parameters(model);
  return layer.attention + layer.norms + layer.router + layer.shared +
         layer.mlp * std::max<std::int64_t>(1, model.experts);
}

std::int64_t embedding_parameters(const Model& model) {
  return model.hidden * (model.vocabulary + (model.learned_positions ? model.positions : 0));
}

std::int64_t head_parameters(const Model& model) {
  return norm_parameters(model) + (model.tied_embeddings ? 0 : model.hidden * model.vocabulary);
}

std::int64_t parameters_of(const Model& model) {
  return model.layers * parameters_of_layer(model) + embedding_parameters(model) + head_parameters(model);
}

std::int64_t active_parameters_of(const Model& model) {
  if (model.experts == 0) return parameters_of(model);
  return parameters_of(model) - model.layers * (model.experts - model.experts_per_token) * layer_parameters(model).mlp;
}

TokenFlops token_flops(const Model& model) {
  TokenFlops found;
  found.layers = 2.0 * static_cast<double>(model.layers) * static_cast<double>(active_matrices(model));
  found.attention = 4.0 * static_cast<double>(model.layers) * static_cast<double>(model.sequence) *
                    static_cast<double>(model.heads * model.head_size);
  found.head = 2.0 * static_cast<double>(model.hidden) * static_cast<double>(model.vocabulary);
  return found;
}

double training_flops(const Model& model, double tokens, bool layers_again) {
  const TokenFlops token = token_flops(model);
  return tokens * ((layers_again ? 4.0 : 3.0) * (token.layers + token.attention) + 3.0 * token.head);
}

namespace {

constexpr KnownModel gpt(std::string_view name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                         std::int64_t vocabulary, std::int64_t sequence, std::string_view source) {
  return {name, Family::gpt, layers, hidden, heads, heads, 4 * hidden, vocabulary, sequence, source};
}

// Models whose tokens are bytes are small enough for tests and for a laptop.
constexpr KnownModel gpt2(std::string_view name, std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                          std::int64_t vocabulary, std::int64_t sequence, std::string_view source) {
  return {name, Family::gpt2, layers, hidden, heads, heads, 4 * hidden, vocabulary, sequence, source};
}

constexpr std::string_view kSmall = "our own, GPT-2's architecture on bytes";
constexpr std::string_view kSmallLlama = "our own, Llama's architecture on bytes; as many parameters per layer as nano";
constexpr std::string_view kGpt2 = "Radford et al. 2019, table 2; heads of 64";
// Two rows of the table are inconsistent (heads x head size is not the width): gpt3-1.3b has 16 heads here, gpt3-13b
// width 5120. Attention is dense in every layer here, while GPT-3's is sparse in every other layer.
constexpr std::string_view kGpt3 = "Brown et al. 2020 (arXiv:2005.14165), table 2.1";
constexpr std::string_view kSc21 = "Narayanan et al. 2021 (arXiv:2104.04473), table 1; 51,200 words, 2,048 tokens";
constexpr std::string_view kRecompute = "Korthikanti et al. 2022 (arXiv:2205.05198), table 3";
constexpr std::string_view kLlama2 = "Touvron et al. 2023 (arXiv:2307.09288); sizes of its published configurations";
constexpr std::string_view kLlama3 = "Grattafiori et al. 2024 (arXiv:2407.21783), table 3";
constexpr std::string_view kMixtral = "Jiang et al. 2024 (arXiv:2401.04088), table 1";

constexpr std::array kModels{
    gpt2("nano", 4, 128, 4, 256, 128, kSmall),
    gpt2("micro", 6, 192, 6, 256, 256, kSmall),
    gpt2("bench-a", 4, 256, 4, 256, 128, kSmall),
    gpt2("gpt2-124m", 12, 768, 12, 50257, 1024, kGpt2),
    gpt2("gpt2-355m", 24, 1024, 16, 50257, 1024, kGpt2),
    gpt2("gpt2-774m", 36, 1280, 20, 50257, 1024, kGpt2),
    gpt2("gpt2-1.5b", 48, 1600, 25, 50257, 1024, kGpt2),
    gpt("gpt3-125m", 12, 768, 12, 50257, 2048, kGpt3),
    gpt("gpt3-350m", 24, 1024, 16, 50257, 2048, kGpt3),
    gpt("gpt3-760m", 24, 1536, 16, 50257, 2048, kGpt3),
    gpt("gpt3-1.3b", 24, 2048, 16, 50257, 2048, kGpt3),
    gpt("gpt3-2.7b", 32, 2560, 32, 50257, 2048, kGpt3),
    gpt("gpt3-6.7b", 32, 4096, 32, 50257, 2048, kGpt3),
    gpt("gpt3-13b", 40, 5120, 40, 50257, 2048, kGpt3),
    // 51,200 words: Megatron's padding of 50,257 for eight tensor-parallel ranks.
    gpt("gpt3-175b", 96, 12288, 96, 51200, 2048, kGpt3),
    gpt("megatron-1.7b", 24, 2304, 24, 51200, 2048, kSc21),
    gpt("megatron-3.6b", 30, 3072, 32, 51200, 2048, kSc21),
    gpt("megatron-7.5b", 36, 4096, 32, 51200, 2048, kSc21),
    gpt("megatron-18.4b", 40, 6144, 48, 51200, 2048, kSc21),
    gpt("megatron-39.1b", 48, 8192, 64, 51200, 2048, kSc21),
    gpt("megatron-76.1b", 60, 10240, 80, 51200, 2048, kSc21),
    gpt("megatron-145.6b", 80, 12288, 96, 51200, 2048, kSc21),
    gpt("megatron-310.1b", 96, 16384, 128, 51200, 2048, kSc21),
    gpt("megatron-529.6b", 105, 20480, 128, 51200, 2048, kSc21),
    gpt("megatron-1008b", 128, 25600, 160, 51200, 2048, kSc21),
    gpt("megatron-22b", 48, 6144, 64, 51200, 2048, kRecompute),
    gpt("megatron-175b", 96, 12288, 96, 51200, 2048, kRecompute),
    gpt("megatron-530b", 105, 20480, 128, 51200, 2048, kRecompute),
    gpt("megatron-1t", 128, 25600, 160, 51200, 2048, kRecompute),
    KnownModel{"llama-nano", Family::llama, 4, 128, 4, 2, 384, 256, 128, kSmallLlama},
    KnownModel{"llama2-7b", Family::llama, 32, 4096, 32, 32, 11008, 32000, 4096, kLlama2},
    KnownModel{"llama2-13b", Family::llama, 40, 5120, 40, 40, 13824, 32000, 4096, kLlama2},
    KnownModel{"llama2-70b", Family::llama, 80, 8192, 64, 8, 28672, 32000, 4096, kLlama2},
    KnownModel{"llama3-8b", Family::llama3, 32, 4096, 32, 8, 14336, 128256, 8192, kLlama3},
    KnownModel{"llama3-70b", Family::llama3, 80, 8192, 64, 8, 28672, 128256, 8192, kLlama3},
    KnownModel{"llama3-405b", Family::llama3, 126, 16384, 128, 8, 53248, 128256, 8192, kLlama3},
    KnownModel{"llama3.1-8b", Family::llama31, 32, 4096, 32, 8, 14336, 128256, 8192, kLlama3},
    KnownModel{"llama3.1-70b", Family::llama31, 80, 8192, 64, 8, 28672, 128256, 8192, kLlama3},
    KnownModel{"llama3.1-405b", Family::llama31, 126, 16384, 128, 8, 53248, 128256, 8192, kLlama3},
    KnownModel{"mixtral-8x7b", Family::mixtral, 32, 4096, 32, 8, 14336, 32000, 32768, kMixtral},
    KnownModel{"mixtral-8x22b", Family::mixtral, 56, 6144, 48, 8, 16384, 32000, 65536,
               "Mistral AI 2024, published configuration of Mixtral-8x22B-v0.1"},
};

}  // namespace

std::span<const KnownModel> known_models() {
  return kModels;
}

Model model_of(const KnownModel& known) {
  Model model;
  model.name = known.name;
  model.layers = known.layers;
  model.hidden = known.hidden;
  model.heads = known.heads;
  model.kv_heads = known.kv_heads;
  model.head_size = known.hidden / known.heads;
  model.ffn_hidden = known.ffn_hidden;
  model.vocabulary = known.vocabulary;
  model.sequence = known.sequence;
  model.positions = known.sequence;
  model.dropout = known.family == Family::gpt;
  if (known.family == Family::gpt2 || known.family == Family::gpt) return model;
  model.gated = true;
  model.biases = false;
  model.tied_embeddings = false;
  model.learned_positions = false;
  model.norm = Norm::rms;
  if (known.family == Family::llama3 || known.family == Family::llama31) model.rope_theta = 500'000;
  if (known.family == Family::llama31) model.rope_factor = 8;
  if (known.family == Family::mixtral) {
    model.rope_theta = 1'000'000;
    model.experts = 8;
    model.experts_per_token = 2;
  }
  return model;
}

}  // namespace lockstep::workload
