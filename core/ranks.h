// Starts local ranks: threads of this process, or processes forked from it.
#pragma once

#include <chrono>
#include <functional>

#include "core/gate.h"
#include "core/shared_memory.h"

namespace lockstep::core {

// Runs body(rank) for all ranks and returns when every one has ended. Rank 0 runs on the calling thread, so that its
// results stay in this process. If a rank throws, its message is raised on `abort`, every other rank sees it in its
// next wait, and the Error of the rank that failed first is thrown here. With processes, a rank that dies (kill -9, a
// crash) is noticed and named, and no child outlives this process. `abort` must be in memory of the same sharing.
//
// Threads that have not ended `grace` after the first failure are stuck in a call that we cannot end (for example a GPU
// driver's): the failure and the numbers of these ranks are written to standard error, and the process ends with the
// failure's status.
void run_ranks(Sharing sharing, int num_ranks, AbortFlag& abort, const std::function<void(int)>& body,
               std::chrono::milliseconds grace = std::chrono::seconds(120));

}  // namespace lockstep::core
