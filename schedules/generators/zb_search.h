// The search of Qi et al. 2023 (arXiv:2401.10241), section 3.1, for a zero-bubble schedule with given times and memory.
#pragma once

#include "schedules/own_span_bound.h"
#include "schedules/play.h"
#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {

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

}  // namespace lockstep::schedules
