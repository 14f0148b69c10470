#include "bench/trainer/flag_readers.h"

namespace lockstep::mini_train {

using program::FlagValue;

workload::ContextWay context_way_of(const FlagValue& value) {
  for (std::size_t way = 0; way < workload::kContextWays.size(); ++way) {
    if (value.text == workload::kContextWays[way]) return static_cast<workload::ContextWay>(way);
  }
  throw value.refused("not a form of context parallelism", "ring zigzag allgather ulysses lightseq colossal");
}

core::DType dtype_of(const FlagValue& value) {
  for (const core::DType dtype : {core::DType::f32, core::DType::bf16, core::DType::f16}) {
    if (value.text == core::short_name_of(dtype)) return dtype;
  }
  throw value.refused("not a dtype to train in", "f32 bf16 f16");
}

workload::Model model_of(const FlagValue& value) {
  return value.parsed_by(workload::parse_model);
}

void change_model(std::string& model, const char* field, std::int64_t value) {
  model += std::string(",") + field + "=" + std::to_string(value);
}

void change_length(std::string& model, std::int64_t length) {
  const workload::Model so_far = model_of({"--model", model});
  if (length > so_far.positions) {
    throw core::usage_error("--length " + std::to_string(length) + " is out of range; allowed: 1 to " +
                            std::to_string(so_far.positions) + " (the positions of " + so_far.name +
                            "), or a --model with positions=" + std::to_string(length));
  }
  change_model(model, "sequence", length);
}

transports::LinkSpec link_of(const FlagValue& value) {
  return value.parsed_by(transports::parse_link);
}

workload::Compression compression_of(const FlagValue& value) {
  return value.parsed_by(workload::parse_compression);
}

}  // namespace lockstep::mini_train
