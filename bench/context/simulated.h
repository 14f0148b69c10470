// The simulator's prediction of a pass with exchanges beside kernels.
#pragma once

#include <vector>

#include "bench/context/pieces.h"
#include "collectives/transports/paced_link.h"

namespace lockstep::context_bench {

// In microseconds, from the start to the end of the last rank. kernel_us: [rank][piece], of kernels as they were
// measured; exchanges take what the simulator's formulas say of the link.
double simulated_us(const workload::ContextLayer& layer, const std::vector<Piece>& pieces, bool backward,
                    const std::vector<std::vector<double>>& kernel_us, const transports::LinkSpec& link);

}  // namespace lockstep::context_bench
