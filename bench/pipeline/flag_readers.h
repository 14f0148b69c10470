// Readers of flags that pipeline_perf and overlap_perf share.
#pragma once

#include <string>

#include "bench/pipeline/flags.h"
#include "bench/sweep/flag_values.h"

namespace lockstep::pipeline {

Mode mode_of(const sweep::FlagValue& value);
std::string file_name(const sweep::FlagValue& value);

}  // namespace lockstep::pipeline
