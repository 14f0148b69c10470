// The search of Qi et al. 2023 (arXiv:2401.10241), section 3.1, for a zero-bubble schedule of given times and memory.
#pragma once

#include "schedules/own_span_bound.h"
#include "schedules/play.h"
#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {

struct ZbSearch {
  PipelineShape shape = {};  // of one chunk a rank
  Times times = {};
  MemoryLimit memory = {};
};

// The best by own span, then by makespan, of a greedy construction under each combination of its choices, and of the
// hand-made ZB-H1 and ZB-H2 where they keep to the limit.
Schedule zb_search(const ZbSearch& wanted);

// The handmade schedules that the search begins with (zero_bubble.cpp).
Schedule zb_h1(const PipelineShape& shape);
Schedule zb_h2(const PipelineShape& shape);

}  // namespace lockstep::schedules
