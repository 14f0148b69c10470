// Where the time of a step goes, in the names of records and tables.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedules/step/breakdown.h"

namespace lockstep::pipeline {

// Parts of a rank's step with their names, in the order in which they are shown; together the step.
std::vector<std::pair<std::string, std::int64_t>> named_parts(const schedules::Breakdown& parts);

// The mean of all ranks, in milliseconds.
std::vector<std::pair<std::string, double>> mean_parts_ms(const std::vector<schedules::Breakdown>& ranks);

}  // namespace lockstep::pipeline
