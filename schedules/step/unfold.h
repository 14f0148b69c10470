// The step of one pipeline made the step of many alike: passes work on one rank for each place of the pipeline, whose
// groups name one member and how many there are in truth; the ranks of the whole are written out at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// All members, ascending, of the group that `folded`, a group of the pipeline's step, stands for where `rank` of the
// whole is a member.
using MembersOf = std::function<std::vector<std::int32_t>(const Group& folded, std::int32_t rank)>;

// `copies` pipelines: rank r of the pipeline's step becomes ranks r * copies + k, k from 0 to copies - 1. Messages stay
// within copy k.
Step unfold(const Step& pipeline, std::int32_t copies, const MembersOf& members_of);

}  // namespace lockstep::schedules
