// Calls that a worker times: calls of a case, one after the other. Two sources define it, and a program links one of
// them: calls.cpp, or planted_calls.cpp, whose calls take longer by a known percentage, for tests of the regression
// gate.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep::serve {

// Mean time (us) of `calls` calls.
double us_of_calls(std::int64_t calls, const std::function<void()>& call);

}  // namespace lockstep::serve
