// Makes the plan for one operation from an algorithm's name: fills in options that depend on the message size.
#pragma once

#include <string_view>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"

namespace lockstep::backends {

// Plan of "name:key=value...". Pipelined algorithms (option `chunks`) get as many chunks as make each about
// kChunkBytes, unless the user chooses a number. plan.algorithm is the label without the options that were filled in.
inline constexpr std::int64_t kChunkBytes = 64 << 10;
plan::Plan plan_for(const collectives::Operation& operation, int num_ranks, std::string_view algorithm);

}  // namespace lockstep::backends
