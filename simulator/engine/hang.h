// The text of a deadlock: the task at which each rank is blocked.
#pragma once

#include <string>

#include "schedules/step/step.h"

namespace lockstep::simulator {

// Appends "rank 0, lane receive, at 1RECV_F2 from rank 3"; after a few entries appends "..." instead.
void add_waiter(std::string& text, std::int32_t rank, const schedules::Task& task);

}  // namespace lockstep::simulator
