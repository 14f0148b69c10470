// Gathers and reductions where the lists of a schedule have them (UNSHARD, RESHARD, REDUCE_GRAD): as PyTorch's
// pipelining puts them (schedules/parameters.h), or as a user wrote them.
#pragma once

#include <cstdint>
#include <span>

#include "schedules/schedule.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {

// Of a stage, before sharding.
struct StageParameters {
  std::int64_t parameter_bytes = 0;
  std::int64_t gradient_bytes = 0;
};

// `step`: lower()'s of that schedule, not yet changed by passes. A gather or a reduction starts when what stands before
// it in the list has been computed; F, B and I wait for their stage's gather. In group `data`; a gather is a whole
// stage, a reduction a reduce-scatter of one. Throws a usage Error if a stage is gathered twice, given up or used while
// it is not there, though its list gathers it somewhere, or if a rank is in no group `data`.
void place_listed_parameters(Step& step, const Schedule& schedule, std::span<const StageParameters> sizes);

}  // namespace lockstep::schedules
