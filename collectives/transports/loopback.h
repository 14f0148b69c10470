// A Transport between threads of one process: mailboxes that hold a stated number of messages a channel. For ranks that
// are threads, for the tests of message executors, and for anybody who wants to see what the buffering of a transport
// does to a plan. A message whose receive is posted before it is sent is copied once, others twice.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "collectives/transports/transport.h"
#include "core/gate.h"

namespace lockstep::transports {

class LoopbackWorld {
 public:
  // `capacity` messages a channel are copied at once, and their sends are done before anybody receives them. Further
  // ones wait with the sender; with 0 every send waits for its receive (rendezvous). The timeout is barrier()'s and
  // all_gather()'s. `flag`: an abort flag of the caller's, which ends all ranks as abort() does.
  LoopbackWorld(int num_ranks, int capacity, std::chrono::nanoseconds timeout, const core::AbortFlag* flag = nullptr);
  ~LoopbackWorld();

  std::unique_ptr<Transport> endpoint(int rank);  // must not outlive the world
  // Ends all ranks: their next idle(), barrier() or all_gather() throws Error(rank_lost) with this reason.
  void abort(const std::string& reason);
  // Called by a rank that has looked for its messages: sleeps until another one comes to it, at most so long. Returns
  // at once if one has come since it last returned.
  void nap(int rank, std::chrono::nanoseconds longest);

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::transports
