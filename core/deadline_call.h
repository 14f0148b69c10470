// Deadlines for calls of other libraries that have no timeout.
#pragma once

#include <chrono>
#include <functional>

namespace lockstep::core {

// Runs the call on a thread of its own and waits for it. Returns true if the call has returned; what it threw is
// rethrown here. Returns false at the timeout; the call then continues on its thread, so everything that it uses must
// be owned by it or shared with it.
bool returns_in_time(std::function<void()> call, std::chrono::nanoseconds timeout);

}  // namespace lockstep::core
