// The simulator's prediction of a pass with overlapped exchanges.
#pragma once

#include <vector>

#include "bench/context/pieces.h"
#include "collectives/transports/paced_link.h"

namespace lockstep::context_bench {

// Microseconds from the start to the end of the last rank. kernel_us: [rank][piece], kernels as measured; exchanges
// take the times of the simulator's link formulas.
double simulated_us(const workload::ContextLayer& layer, const std::vector<Piece>& pieces, bool backward,
                    const std::vector<std::vector<double>>& kernel_us, const transports::LinkSpec& link);

}  // namespace lockstep::context_bench
