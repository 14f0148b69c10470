// Ranks under mpirun: MPI as a transport, with deadlines for calls that block, and threads of its processes as ranks.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collectives/transports/transport.h"
#include "core/error.h"
#include "core/wait.h"

namespace lockstep::transports {

// A deadline for calls that block and cannot be interrupted: a thread checks periodically whether the call that was
// active at its last checks still is.

class Watchdog {
 public:
  // `expired` is called once, on the watchdog's thread, when a call takes longer than the timeout (by at most an
  // eighth).
  Watchdog(std::chrono::nanoseconds timeout, std::function<void()> expired);
  ~Watchdog();

  // Call them around each watched call, on its thread. Each costs an addition.
  void enter() { calls_.fetch_add(1, std::memory_order_relaxed); }
  void leave() { calls_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void watch();

  std::chrono::nanoseconds timeout_;
  std::function<void()> expired_;
  std::atomic<std::uint64_t> calls_{0};  // odd: within a call
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stopped_ = false;
  std::thread thread_;
};

// The world of an MPI run, and the Transport over its point-to-point messages. In builds without MPI, mpi_absent.cpp
// takes the place of mpi_world.cpp, and MpiWorld throws.

// Threads of a rank that may call MPI: only main's (MPI_THREAD_FUNNELED), or any at any time (MPI_THREAD_MULTIPLE), for
// which every call takes locks.
enum class MpiThreads : std::uint8_t { funneled, multiple };
inline std::string_view name_of(MpiThreads threads) {
  return threads == MpiThreads::multiple ? "MPI_THREAD_MULTIPLE" : "MPI_THREAD_FUNNELED";
}

// Ranks and their hosts. The same on every rank, except for `rank`.
struct MpiPlacement {
  int rank = 0;
  int num_ranks = 1;
  int num_hosts = 1;
  int most_ranks_of_a_host = 1;
  int cores_per_rank = 1;  // this rank's share of the cores that it is bound to: the least of all ranks, and at least 1
  bool oversubscribed = false;  // on some host, ranks outnumber the cores that they share
};

// Properties of a transport.
struct MpiTransportOptions {
  std::vector<std::int32_t> members = {};  // ranks of the world, ascending, including this one; empty: all
  const core::AbortFlag* abort = nullptr;  // idle() throws its Error
  // The ranks wait on this transport only, all with the same deadline: find_silent() asks.
  bool alone = false;
  // idle() sleeps, longer from call to call: for ranks whose computing threads need the core.
  bool naps = false;
  // Messages progress while the caller's thread computes: a thread of the transport makes them, from the first message
  // on. Needs MpiThreads::multiple.
  bool progresses = false;
};

// MPI from its start to its end: one per process, made by main's thread.
class MpiWorld {
 public:
  // The timeout holds for barrier() and all_gather(), and for the last barrier before MPI is finalized. `threads` is
  // the level requested from MPI.
  MpiWorld(int* argc, char*** argv, std::chrono::nanoseconds timeout, MpiThreads threads = MpiThreads::funneled);
  ~MpiWorld();  // during an exception: abort() in place of a barrier that others might never reach
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  const MpiPlacement& placement() const;
  std::string library_version() const;  // "Open MPI 4.1.4"
  // level in effect: multiple only if it was requested and all ranks' MPI provides it
  MpiThreads threads() const;

  // A rank's end of a communicator of its own, for one thread at a time. Members make theirs in the same order, in
  // main's thread. Must not outlive the world.
  std::unique_ptr<Transport> make_transport(const MpiTransportOptions& options = {});
  // The same for several threads of the process: each gets an end of its own of one communicator, whose channels they
  // share. Only one thread at a time may be in barrier() or all_gather().
  std::vector<std::unique_ptr<Transport>> make_transports(int threads, const MpiTransportOptions& options);

  void* native_communicator() const;  // MPI_Comm*: the world's own duplicate, for MPI's collectives

  // Ends all ranks if a blocking MPI call takes longer than the timeout.
  Watchdog& watchdog();

  // Number of this program's ranks in each process, for abort(); 1 unless threads are ranks.
  void set_ranks_per_process(int ranks);
  // Prints one line and ends all ranks with the failure's exit status. A timeout's or a lost rank's line also names the
  // ranks of this host whose processes are stopped or have ended. May be called from any thread.
  [[noreturn]] void abort(const core::Error& error) const;

  // Throws a usage Error on all ranks if revision or arguments of one differ from rank 0's.
  void check_alike(const std::string& revision, std::span<char* const> arguments) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// True if MPI is built in; mpi_absence() returns why not.
bool mpi_is_built();
std::string mpi_absence();

// main() of an MPI program: makes the world, runs the body, returns its status. An exception from the body ends all
// ranks by abort(), so that none waits for this one. Ranks whose `revision` or arguments differ are refused: they would
// wait for each other's messages in vain, or be timed together under one name.
int run_mpi_program(int argc, char** argv, const std::string& revision, std::chrono::nanoseconds timeout,
                    const std::function<int(MpiWorld&)>& body, MpiThreads threads = MpiThreads::funneled);

// Ranks that are threads of several processes, as nccl-tests' -t and -g under mpirun: T threads in each of P processes
// are P * T ranks, and the rank of a thread is process * T + thread. Messages between two threads have channels of
// their own between the two processes. Barriers and gathers take two steps: the threads of each process meet, then the
// processes, for which thread 0 speaks; MPI may therefore be MPI_THREAD_FUNNELED where no messages are sent.

// Runs body on one thread for each of `ends` and returns when all have ended; thread 0 is the calling thread. Each end
// belongs to this process and to one thread; all ends of a process share their channels. If a thread fails, `abort` is
// raised, which the ends must check while they wait, and the failure is thrown here. Waits for threads of this process
// give up a second after `timeout`, so that the end's own error comes first: it names the ranks that are missing.
void run_threads(const std::vector<std::unique_ptr<Transport>>& ends, core::AbortFlag& abort,
                 std::chrono::milliseconds timeout, const std::function<void(Transport&)>& body);

// The same for a process of mpirun. All processes must pass the same number of threads; with one, body gets MPI's own
// transport. With several, messages between ranks need MpiThreads::multiple.
void run_threads_of_process(MpiWorld& mpi, int threads, std::chrono::milliseconds timeout,
                            const std::function<void(Transport&)>& body);

}  // namespace lockstep::transports
