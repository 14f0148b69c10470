// Starting local ranks: threads of this process, or processes forked from it.
#pragma once

#include <functional>

#include "core/gate.h"
#include "core/shared_memory.h"

namespace lockstep::core {

// Runs body(rank) for all ranks and returns when every one has ended. Rank 0 runs on the calling thread, so that what
// it computes stays in this process. If a rank throws, its message is raised on `abort`, every other rank finds it in
// its next wait, and the Error of the rank that failed first is thrown here. With processes, a rank that dies (kill -9,
// a crash) is noticed and named; and no child outlives this process. `abort` must lie in memory of the same sharing.
void run_ranks(Sharing sharing, int num_ranks, AbortFlag& abort, const std::function<void(int)>& body);

}  // namespace lockstep::core
