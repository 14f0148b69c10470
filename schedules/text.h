// Reads and writes schedules as the CSV of torch.distributed.pipelining: one line per rank, one cell per action; empty
// cells are idle time. docs/schedule_format.md has the grammar.
#pragma once

#include <string>
#include <string_view>

#include "schedules/schedule.h"

namespace lockstep::schedules {

std::string to_csv(const Schedule& schedule);

// Parses a schedule without checking that it is a complete step (check.h does). A stage belongs to the rank in whose
// line it appears. `pipes`: number of chains that the stages form. Throws a usage Error with `source`, line, column,
// the text found there and what is allowed.
Schedule parse_csv(std::string_view text, std::string_view source, std::int32_t pipes = 1);

}  // namespace lockstep::schedules
