// A lower bound of the largest own span of any schedule within a memory limit; found schedules are compared with it.
// docs/metrics.md (A bound of the own span) has the proof.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/play.h"
#include "schedules/shape.h"

namespace lockstep::schedules {

// Activations that a rank may hold, in units of one microbatch's activations of its share of the model: each microbatch
// counts 1 from its forward to its input gradient, then `w_share` until its weight gradient.
struct MemoryLimit {
  double most = 1;     // at least max(1, w_share), which any schedule needs
  double w_share = 1;  // at least 0; above 1 where the backward makes more than the forward kept
};

// No schedule with one chunk per rank (split or full backwards, in any order) whose ranks stay within the limit has a
// shorter largest own span than this, in the unit of `times`.
double least_own_span(const PipelineShape& shape, const Times& times, const MemoryLimit& memory);

// Number of forwards before the first backward on each rank, so that no rank waits longer than `most_idle` for that
// backward and no backward comes later than necessary. Empty if there are no such numbers.
std::vector<std::int32_t> warm_up_forwards(const PipelineShape& shape, const Times& times, const MemoryLimit& memory,
                                           double most_idle);

// Largest number of units of size `one` within the limit.
std::int32_t most_units(double limit, double one);

}  // namespace lockstep::schedules
