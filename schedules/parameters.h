// What is done to stages' parameters where PyTorch's pipelining does it, as UNSHARD, RESHARD and REDUCE_GRAD in the
// lists of a schedule (torch.distributed.pipelining.schedules, _add_unshard_reshard and _add_reduce_grad).
#pragma once

#include "schedules/schedule.h"

namespace lockstep::schedules {

// Before each action a rank gathers those of the next `most_active` different stages of its list that it has not, and
// gives up what is none of them; at the end it gives up all.
Schedule with_gathers(const Schedule& schedule, std::int32_t most_active = 3);

// After the last backward (B or W) of a stage.
Schedule with_reductions(const Schedule& schedule);

}  // namespace lockstep::schedules
