// Who stands where when nothing moves any more.
#pragma once

#include <string>

#include "schedules/step/step.h"

namespace lockstep::simulator {

// Adds "rank 0, lane receive, at 1RECV_F2 from rank 3" to what is there; names a few of many and then dots.
void add_waiter(std::string& text, std::int32_t rank, const schedules::Task& task);

}  // namespace lockstep::simulator
