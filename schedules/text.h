// Schedules as the CSV that PyTorch's pipelining writes and reads: a line a rank, a cell an action, empty cells for
// time in which nothing is planned. docs/schedule_format.md has the grammar.
#pragma once

#include <string>
#include <string_view>

#include "schedules/schedule.h"

namespace lockstep::schedules {

std::string to_csv(const Schedule& schedule);

// The schedule that a text says, right or wrong: that is for check() to judge. A stage belongs to the rank in whose
// line it stands. `pipes`: how many chains the stages make. Throws a usage Error that names `source`, line and column,
// what is there and what is allowed.
Schedule parse_csv(std::string_view text, std::string_view source, std::int32_t pipes = 1);

}  // namespace lockstep::schedules
