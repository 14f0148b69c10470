// The text that scaling prints.
#pragma once

#include <string>

#include "bench/scaling/flags.h"
#include "bench/scaling/result.h"

namespace lockstep::scaling {

std::string heading_text(const ScalingFlags& flags, const trainer::TrainOptions& options, const std::string& data,
                         int most_ranks, int cores);
std::string columns_text();
std::string row_text(const Result& result);
// Differences of the measured step from both predictions, by part.
std::string gap_text(const Result& result);
// Slowdowns of pieces that run concurrently.
std::string slowdowns_text(const Result& result);
std::string closing_text();

}  // namespace lockstep::scaling
