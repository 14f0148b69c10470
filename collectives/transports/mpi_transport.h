// The world of an MPI run, and the Transport over its point-to-point messages. Where MPI is not built, mpi_absent.cpp
// takes the place of mpi_transport.cpp, and MpiWorld says so.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "collectives/transports/transport.h"
#include "core/error.h"

namespace lockstep::transports {

class Watchdog;

// Who the ranks are. The same on every rank but for `rank`.
struct MpiPlacement {
  int rank = 0;
  int num_ranks = 1;
  int num_hosts = 1;
  int most_ranks_of_a_host = 1;
  bool oversubscribed = false;  // some host has more ranks than cores
};

// MPI from its start to its end: one a process, made by main's thread, which alone may use it (MPI_THREAD_FUNNELED).
class MpiWorld {
 public:
  // The timeout is that of barrier() and all_gather(), and of the last meeting before MPI is ended.
  MpiWorld(int* argc, char*** argv, std::chrono::nanoseconds timeout);
  ~MpiWorld();  // when an exception passes: abort() in place of a meeting that the others might never come to
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  const MpiPlacement& placement() const;
  std::string library_version() const;  // "Open MPI 4.1.4"

  // A rank's end of a communicator of its own. All ranks make theirs in the same order. Must not outlive the world.
  std::unique_ptr<Transport> make_transport();

  void* native_communicator() const;  // MPI_Comm*: the world's own duplicate, for MPI's collectives

  // Ends all ranks when a blocking call of MPI's takes longer than the timeout.
  Watchdog& watchdog();

  // Prints one line and ends all ranks with the failure's exit status. May be called from any thread.
  [[noreturn]] void abort(const core::Error& error) const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// Whether MPI is built in; if not, why.
bool mpi_is_built();
std::string mpi_absence();

// main() of an MPI program: makes the world, runs the body, returns its status. An exception that leaves the body ends
// all ranks by abort(), so that none waits for this one.
int run_mpi_program(int argc, char** argv, std::chrono::nanoseconds timeout, const std::function<int(MpiWorld&)>& body);

}  // namespace lockstep::transports
