// Whether the messages in a schedule's lists are those that its computations need.
#pragma once

#include <vector>

#include "schedules/check.h"
#include "schedules/schedule.h"

namespace lockstep::schedules {

// Its computations have to be right. In the order of ranks and lists.
std::vector<Problem> check_messages(const Schedule& schedule);

}  // namespace lockstep::schedules
