// Warm-up and cool-down of a repeated building block put in a better order: Qi et al. 2024 (arXiv:2405.15362), section
// 4: the peak of memory lies between the two, so that they have room.
#pragma once

#include "schedules/schedule.h"
#include "schedules/shape.h"

namespace lockstep::schedules {

// The schedule with work moved forward to slots in which a rank would wait for others, as far as no rank then holds
// more microbatches (from F to W) than the worst one did. Slots are as long as any action of the lists, which have to
// be right. What is returned is never slower in such slots, by the largest own span and then by makespan.
Schedule reordered(const Schedule& schedule);

// V-Half and V-Min before that, the repeated block alone (v_blocks.cpp). Not in the catalogue.
Schedule v_half_block(const PipelineShape& shape);
Schedule v_min_block(const PipelineShape& shape);

}  // namespace lockstep::schedules
