// How short the largest own span of any schedule can be that holds no more activations than allowed: what a found
// schedule is held against. docs/metrics.md (A bound of the own span) has the argument.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/play.h"
#include "schedules/shape.h"

namespace lockstep::schedules {

// The activations that a rank may hold, in units of one microbatch's activations of its share of the model: each
// microbatch counts 1 from its forward to its input gradient, and `w_share` from there to its weight gradient.
struct MemoryLimit {
  double most = 1;     // at least 1 and w_share: any schedule needs as much
  double w_share = 1;  // from 0 on; above 1 where the backward makes more than was kept for it
};

// No schedule of one chunk a rank (split backwards or whole ones, in any order) whose ranks stay within the limit has a
// shorter largest own span. In the unit of the times.
double least_own_span(const PipelineShape& shape, const Times& times, const MemoryLimit& memory);

// Forwards before the first backward, of each rank, such that no rank then waits for longer than `most_idle` for that
// backward, and no backward comes later than it has to for it. Empty: there are none.
std::vector<std::int32_t> warm_up_forwards(const PipelineShape& shape, const Times& times, const MemoryLimit& memory,
                                           double most_idle);

// The most whole units within the limit, of `one` each.
std::int32_t most_units(double limit, double one);

}  // namespace lockstep::schedules
