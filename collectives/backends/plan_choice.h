// From an algorithm's name to the plan for one operation: fills in what depends on the message size.
#pragma once

#include <string_view>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"

namespace lockstep::backends {

// The plan of "name:key=value...". Pipelined algorithms (option `chunks`) get as many chunks as keep each at about
// kChunkBytes, unless the user says otherwise. plan.algorithm is the label without what was filled in.
inline constexpr std::int64_t kChunkBytes = 64 << 10;
plan::Plan plan_for(const collectives::Operation& operation, int num_ranks, std::string_view algorithm);

}  // namespace lockstep::backends
