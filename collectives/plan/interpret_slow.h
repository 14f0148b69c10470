// A slow, obvious engine, for tests only: runs a plan on numbers, one step of one lane at a time, in a random order. It
// shares no code with the checker: channels are queues, memory is vectors, and waiting is trying again.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/plan/check.h"

namespace lockstep::plan {

// Returns an empty text if the run ended with every output right and the input unchanged, else the error. Blocks have
// unequal chunks, so that a chunk in a place of another size is detected. The seed decides the order: any runnable lane
// each time, or, for one seed in four, always the runnable lane of the highest random priority (some lanes far ahead of
// others).
std::string interpret_slow(const Plan& plan, const CheckOptions& options, std::uint64_t seed);

}  // namespace lockstep::plan
