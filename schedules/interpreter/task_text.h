// A task as text, for error messages.
#pragma once

#include <string>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// "1RECV_F2 from rank 0", "REDUCE_GRAD with group 3", "2F1".
std::string text_of(const Task& task);

}  // namespace lockstep::schedules
