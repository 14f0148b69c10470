// Shortens warm-up and cool-down of a repeated building block (Qi et al. 2024, arXiv:2405.15362, section 4): memory
// peaks between the two, so both have room to reorder.
#pragma once

#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {

// The schedule with work moved forward into slots in which a rank would wait, as long as no rank then holds more
// microbatches (from F to W) than the fullest rank did before. Every action takes one slot. `schedule` has to pass
// check(). The result is never slower in slots, by the largest own span and then by the makespan.
Schedule reordered(const Schedule& schedule);

// V-Half and V-Min as the repeated block alone, before reordered() (v_blocks.cpp). Not in the catalogue.
Schedule v_half_block(const PipelineShape& shape);
Schedule v_min_block(const PipelineShape& shape);

}  // namespace lockstep::schedules
