#include "workload/known_models.h"

#include <array>

namespace lockstep::workload {
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
    model.experts_a_token = 2;
  }
  return model;
}

}  // namespace lockstep::workload
