// The breakdown of a step's time, with the names that records and tables use.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedules/step/breakdown.h"

namespace lockstep::pipeline {

// The parts of a rank's step with their names, in display order; their sum is the step.
std::vector<std::pair<std::string, std::int64_t>> named_parts(const schedules::Breakdown& parts);

// The mean of all ranks, in milliseconds.
std::vector<std::pair<std::string, double>> mean_parts_ms(const std::vector<schedules::Breakdown>& ranks);

}  // namespace lockstep::pipeline
