// Readers of flags that are shared by the programs that train.
#pragma once

#include <cstdint>
#include <string>

#include "bench/program/command_line.h"
#include "collectives/transports/paced_link.h"
#include "core/dtype.h"
#include "workload/compression.h"
#include "workload/context_list.h"
#include "workload/model.h"

namespace lockstep::mini_train {

workload::ContextWay context_way_of(const program::FlagValue& value);
core::DType dtype_of(const program::FlagValue& value);  // f32, bf16, f16
workload::Model model_of(const program::FlagValue& value);
// Changes a field of a model's text: --layers 2 turns "nano" into "nano,layers=2".
void change_model(std::string& model, const char* field, std::int64_t value);
// Applies --length: tokens per sequence, at most the model's positions. Throws a usage Error.
void change_length(std::string& model, std::int64_t length);
transports::LinkSpec link_of(const program::FlagValue& value);
workload::Compression compression_of(const program::FlagValue& value);

}  // namespace lockstep::mini_train
