// Deadlines for calls of other libraries that offer none.
#pragma once

#include <chrono>
#include <functional>

namespace lockstep::core {

// Runs the call on a thread of its own and waits for it. True: it has returned; what it threw is thrown here. False:
// it has not, and is left behind on its thread, so all that it uses must be its own or shared with it.
bool returns_in_time(std::function<void()> call, std::chrono::nanoseconds timeout);

}  // namespace lockstep::core
