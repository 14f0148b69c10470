// Models by name, with where their numbers come from.
#pragma once

#include <span>
#include <string_view>

#include "simulator/model/model.h"

namespace lockstep::simulator {

// What the models of a family share.
enum class Family : std::uint8_t { gpt, llama, mixtral };

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

}  // namespace lockstep::simulator
