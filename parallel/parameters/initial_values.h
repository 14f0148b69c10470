// The values of weights before the first step.
#pragma once

#include <cstdint>
#include <span>

#include "workload/parameters.h"

namespace lockstep::parallel {

// Fills in elements [whole_begin, whole_begin + values.size()) of the whole parameter. Each is a function of (seed,
// name, index) only, so that it does not depend on which part is requested.
void fill_initial_values(const workload::Parameter& parameter, std::uint64_t seed, std::int64_t whole_begin,
                         std::span<float> values);

}  // namespace lockstep::parallel
