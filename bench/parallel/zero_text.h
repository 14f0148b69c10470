// The text that zero_bench prints, as pure functions of the results.
#pragma once

#include <string>

#include "bench/parallel/zero_run.h"

namespace lockstep::parallel_bench {

std::string zero_heading_text(const ZeroFlags& flags);
std::string zero_row_text(const ZeroRow& row, const ZeroResult& result);
std::string zero_ending_text(std::size_t rows, std::size_t wrong);

}  // namespace lockstep::parallel_bench
