// A transformer: its sizes, the number of parameters of each part, and the floating-point operations per token. Known
// models have names, others are given by their numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::workload {

enum class Norm : std::uint8_t { layer, rms };  // LayerNorm has a weight and a bias, RMSNorm a weight
// The columns of a head that rotary positions rotate together: i and i + head_size / 2 (GPT-NeoX, Hugging Face's
// Llama), or 2 i and 2 i + 1 (GPT-J, Meta's Llama).
enum class RopePairs : std::uint8_t { halves, neighbours };

struct Model {
  std::string name;
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;    // fewer than heads: grouped-query attention
  std::int64_t head_size = 0;   // columns per head of queries, keys and values
  std::int64_t ffn_hidden = 0;  // width of the MLP, or of one expert
  std::int64_t vocabulary = 0;  // rows of the embedding, padding included
  std::int64_t sequence = 0;    // tokens per sequence
  std::int64_t positions = 0;   // rows of learned positions, at least as many as tokens
  std::int64_t experts = 0;     // 0: no mixture of experts
  std::int64_t experts_per_token = 0;
  std::int64_t shared_hidden = 0;  // total width of the shared experts, which every token uses; 0: none
  // Node-limited routing (kernels/moe/router.h): groups of experts, and the most groups from which a token has experts.
  std::int64_t expert_groups = 1;
  std::int64_t groups_per_token = 0;  // 0: all groups
  double capacity_factor = 0;         // rows that an expert accepts from one rank over an even share; 0: all (dropless)
  double balance_loss = 0;            // weights of the router's balance loss (kernels/moe/router.h) and z loss
  double z_loss = 0;
  double bias_rate = 0;           // loss-free balancing: change of an expert's bias per step (Wang et al. 2024)
  bool sigmoid_router = false;    // scores of the router: sigmoid, otherwise softmax
  bool normalised_gates = true;   // gates of several chosen experts are normalised to sum 1
  bool gated = false;             // SwiGLU with three matrices, otherwise GELU with two
  bool biases = true;             // linear layers have biases
  bool tied_embeddings = true;    // the head uses the embedding's matrix
  bool learned_positions = true;  // otherwise rotary, which has no parameters
  std::int64_t rope_theta = 10000;
  // Llama 3.1's scaling of rotary positions (kernels::RotaryScaling), with the names of its config.json; factor 1:
  // none.
  std::int64_t rope_factor = 1;
  std::int64_t rope_low_freq_factor = 1;
  std::int64_t rope_high_freq_factor = 4;
  std::int64_t rope_original_positions = 8192;
  RopePairs rope_pairs = RopePairs::halves;
  bool dropout = true;
  Norm norm = Norm::layer;
};

std::int64_t most_groups_of_token(const Model& model);

// The model of a name or of fields: "gpt3-175b", or "hidden=4096,layers=32,heads=32,..." with the fields of
// model_fields(); fields after a name change that model ("gpt3-175b,sequence=4096"). Throws a usage Error that names
// the field and valid values.
Model parse_model(std::string_view text);
std::vector<std::string> model_names();
// "GPT nano"; a model without learned positions is not a GPT and has only its name: "llama3-8b".
std::string title_of(const Model& model);
std::vector<std::string> model_fields();
// Returns why the numbers are invalid ("heads is 0; allowed: at least 1"). Empty if they are valid.
std::string why_invalid(const Model& model);

struct LayerParameters {
  std::int64_t attention = 0;
  std::int64_t mlp = 0;     // the dense MLP, or one expert
  std::int64_t router = 0;  // router of a mixture of experts
  std::int64_t shared = 0;  // its shared experts
  std::int64_t norms = 0;
};
LayerParameters layer_parameters(const Model& model);
std::int64_t parameters_of_layer(const Model& model);   // with all experts
std::int64_t embedding_parameters(const Model& model);  // words and positions
std::int64_t head_parameters(const Model& model);       // the last norm, and its matrix unless it is tied
std::int64_t parameters_of(const Model& model);
std::int64_t active_parameters_of(const Model& model);  // those that a token uses

// Counts of operations by part, because published numbers rarely say what they count. Only products count, two
// operations per multiply-add; scores of attention count in full, even if a causal kernel skips half.
struct TokenFlops {
  double layers = 0;     // matrices of all layers, forward
  double attention = 0;  // scores, and their product with the values, forward
  double head = 0;       // forward
};
TokenFlops token_flops(const Model& model);
// Operations of a training step for `tokens` tokens, forward once and backward twice that: 6 N + 12 L H Q T per token
// (Chowdhery et al. 2022, arXiv:2204.02311, appendix B), where N is the number of elements of the matrices that it
// uses. With `layers_again` the layers' forward counts twice, as with full recomputation (Narayanan et al. 2021,
// arXiv:2104.04473, appendix: 96 B s l h^2 (...)).
inline constexpr std::string_view kFlopConvention = "6 N + 12 L H Q T (Chowdhery et al. 2022, appendix B)";
double training_flops(const Model& model, double tokens, bool layers_again);

// Models by name, with the sources of their numbers.

// The family of a model, which determines the fields that its models share.
enum class Family : std::uint8_t {
  gpt2,  // as trained today, without dropout
  gpt,   // GPT-3 and Megatron-LM's, with dropout
  llama,
  llama3,   // with a larger base of rotary positions
  llama31,  // with scaled rotary positions
  mixtral,
};

struct KnownModel {
  std::string_view name;
  Family family;
  std::int64_t layers;
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t ffn_hidden;
  std::int64_t vocabulary;
  std::int64_t sequence;
  std::string_view source;
};
std::span<const KnownModel> known_models();
Model model_of(const KnownModel& known);

}  // namespace lockstep::workload
