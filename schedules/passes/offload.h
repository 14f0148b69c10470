// Activations that wait in host memory between forward and backward: OFFLOAD and LOAD tasks in lane copy.
#pragma once

#include <cstdint>
#include <span>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// Times of one microbatch in a stage, in picoseconds.
struct CopyCosts {
  std::int64_t offload_ps = 0;
  std::int64_t load_ps = 0;
};

// Each forward's activations leave when it has ended, and come back for the backward (B or I): the copy starts when the
// action that stands `ahead` places before the backward begins, so that it has the time of `ahead` actions. Activations
// that would have to come back as soon as they have left stay (a backward within `ahead` actions of its forward).
void offload_activations(Step& step, std::span<const CopyCosts> costs, std::int32_t ahead = 1);

}  // namespace lockstep::schedules
