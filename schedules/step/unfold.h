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

// `copies` pipelines, whose ranks lie `stride` apart: rank k of the whole does what rank k / stride % ranks of the
// pipeline's step does. Messages stay within a pipeline.
Step unfold(const Step& pipeline, std::int32_t copies, std::int32_t stride, const MembersOf& members_of);

}  // namespace lockstep::schedules
