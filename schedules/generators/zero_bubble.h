// Zero-bubble schedules found by search, and the lower bound that they are compared with.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/play.h"
#include "schedules/schedule.h"

namespace lockstep::schedules {

// A lower bound of the largest own span of any schedule within a memory limit; found schedules are compared with it.
// docs/metrics.md (A bound of the own span) has the proof.

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
std::int32_t most_units(double limit, double unit);

// The search of Qi et al. 2023 (arXiv:2401.10241), section 3.1, for a zero-bubble schedule with given times and memory.

struct ZbSearch {
  PipelineShape shape = {};  // with one chunk per rank
  Times times = {};
  MemoryLimit memory = {};
};

// The best schedule by own span, then by makespan, among those that a greedy construction makes with each combination
// of its options, and the hand-made ZB-H1 and ZB-H2 where they stay within the limit.
Schedule zb_search(const ZbSearch& wanted);

// The hand-made schedules with which the search begins (zb_h1: looped.cpp, zb_h2: zero_bubble.cpp).
Schedule zb_h1(const PipelineShape& shape);
Schedule zb_h2(const PipelineShape& shape);

// Shortens warm-up and cool-down of a repeated building block (Qi et al. 2024, arXiv:2405.15362, section 4): memory
// peaks between the two, so both have room to reorder.

// The schedule with work moved forward into slots in which a rank would wait, as long as no rank then holds more
// microbatches (from F to W) than the fullest rank did before. Every action takes one slot. `schedule` has to pass
// check(). The result is never slower in slots, by the largest own span and then by the makespan.
Schedule reordered(const Schedule& schedule);

// V-Half and V-Min as the repeated block alone, before reordered() (zero_bubble.cpp). Not in the catalogue.
Schedule v_half_block(const PipelineShape& shape);
Schedule v_min_block(const PipelineShape& shape);

}  // namespace lockstep::schedules
