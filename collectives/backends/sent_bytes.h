// Bytes that a prepared collective sends each time it runs.
#pragma once

#include <cstdint>

#include "collectives/backends/backend.h"
#include "collectives/collective.h"

namespace lockstep::backends {

// Bytes sent by `member`, counted in the plan that runs. A library's collective (NCCL's) has no plan to count: -1.
std::int64_t sent_bytes(const Prepared& prepared, const collectives::Operation& operation, int member);

}  // namespace lockstep::backends
