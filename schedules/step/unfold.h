// Expands the step of one pipeline to many equal pipelines. Passes work on one rank per pipeline stage, whose groups
// have one listed member and the number of real ones; unfold() then writes out all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// Returns all members, ascending, of the real group that `folded`, a group of the pipeline's step, represents for
// `rank` of the whole step.
using MembersOf = std::function<std::vector<std::int32_t>(const Group& folded, std::int32_t rank)>;

// `copies` pipelines, whose ranks are `stride` apart: rank k of the whole step does the work of rank k / stride % ranks
// of the pipeline's step. Messages stay within a pipeline.
Step unfold(const Step& pipeline, std::int32_t copies, std::int32_t stride, const MembersOf& members_of);

}  // namespace lockstep::schedules
