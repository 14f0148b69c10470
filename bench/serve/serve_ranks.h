// Ranks as one worker: rank 0 reads the orders, all run them.
#pragma once

#include <cstdint>
#include <functional>

#include "bench/serve/orders.h"
#include "collectives/transports/world.h"

namespace lockstep::serve {

// Called on every rank, with orders on rank 0 only. us_of_call(case, calls) makes this rank's calls and returns its
// mean time of one; the answer is the slowest rank's. Without orders, ranks meet from time to time, so that no deadline
// of the world passes. If it throws an Error, all ranks end.
void serve_ranks(Orders* orders, transports::World& world,
                 const std::function<double(std::size_t case_index, std::int64_t calls)>& us_of_call);

}  // namespace lockstep::serve
