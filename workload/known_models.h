// Models by name, with the sources of their numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "workload/model.h"

namespace lockstep::workload {

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
