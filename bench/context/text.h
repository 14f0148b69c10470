// The text that seqpar_bench prints.
#pragma once

#include <cstddef>
#include <string>

#include "bench/context/flags.h"
#include "bench/context/run.h"

namespace lockstep::context_bench {

std::string heading_text(const ContextFlags& flags);
std::string row_text(const ContextFlags& flags, const parallel::ContextLayer& layer, const Result& result);
std::string ending_text(std::size_t rows, std::size_t wrong);

}  // namespace lockstep::context_bench
