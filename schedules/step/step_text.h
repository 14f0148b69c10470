// A step as the CSV of a lowered schedule (schedules/text.h).
#pragma once

#include <string>

#include "schedules/schedule.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {

// The step's lists in the order in which tasks are issued, as far as a schedule can say them. Pieces of an action are
// one action, where the first of them stands; a stage's UNSHARD stands where its first unit is gathered, its RESHARD
// where the last one is given up, its REDUCE_GRAD where the last bucket of the step leaves. Collectives inside a stage,
// recomputation, copies to the host and the optimizer are left out, as is what runs as one.
Schedule schedule_of(const Step& step);

inline bool has_text(Op op) {
  return op <= Op::reduce_grad;
}

std::string step_to_csv(const Step& step);

}  // namespace lockstep::schedules
