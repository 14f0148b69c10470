// Ranks that are threads of several processes, as nccl-tests' -t and -g under mpirun: T threads in each of P processes
// are P * T ranks, and the rank of a thread is process * T + thread. Messages between two threads have channels of
// their own between the two processes. Barriers and gathers take two steps: the threads of each process meet, then the
// processes, for which thread 0 speaks; MPI may therefore be MPI_THREAD_FUNNELED where no messages are sent.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/transports/mpi_transport.h"
#include "collectives/transports/transport.h"
#include "core/gate.h"

namespace lockstep::transports {

// Runs body on one thread for each of `ends` and returns when all have ended; thread 0 is the calling thread. Each end
// belongs to this process and to one thread; all ends of a process share their channels. If a thread fails, `abort` is
// raised, which the ends must check while they wait, and the failure is thrown here. Waits for threads of this process
// give up a second after `timeout`, so that the end's own error comes first: it says for whom the process waited.
void run_threads(const std::vector<std::unique_ptr<Transport>>& ends, core::AbortFlag& abort,
                 std::chrono::milliseconds timeout, const std::function<void(Transport&)>& body);

// The same for a process of mpirun. All processes must pass the same number of threads; with one, body gets MPI's own
// transport. With several, messages between ranks need MpiThreads::multiple.
void run_threads_of_process(MpiWorld& mpi, int threads, std::chrono::milliseconds timeout,
                            const std::function<void(Transport&)>& body);

}  // namespace lockstep::transports
