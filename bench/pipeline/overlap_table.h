// What overlap_perf prints. Functions of their arguments; they print nothing.
#pragma once

#include <string>

#include "bench/pipeline/overlap_flags.h"
#include "bench/pipeline/overlap_result.h"

namespace lockstep::pipeline {

std::string overlap_heading_text(const OverlapFlags& flags);
std::string overlap_row_text(const OverlapCase& one, const OverlapResult& result);

}  // namespace lockstep::pipeline
