// Readers of flags that pipeline_perf and overlap_perf share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/pipeline/flags.h"
#include "bench/sweep/flag_values.h"

namespace lockstep::pipeline {

int integer(const sweep::FlagValue& value, std::int64_t min, std::int64_t max);
std::vector<int> integer_list(const sweep::FlagValue& value, std::int64_t min, std::int64_t max);
Mode mode_of(const sweep::FlagValue& value);
std::string file_name(const sweep::FlagValue& value);

}  // namespace lockstep::pipeline
