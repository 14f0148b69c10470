// The table of moe_bench.
#pragma once

#include <string>

#include "bench/experts/flags.h"
#include "bench/experts/run.h"

namespace lockstep::experts_bench {

std::string heading_text(const ExpertsFlags& flags);
std::string row_text(const ExpertsFlags& flags, const Case& one, const Result& result);
std::string ending_text(int rows, int wrong_rows);

}  // namespace lockstep::experts_bench
