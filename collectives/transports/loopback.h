// A Transport between threads of one process: mailboxes that hold a stated number of messages a channel. For the tests
// of message executors, and for anybody who wants to see what the buffering of a transport does to a plan.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "collectives/transports/transport.h"

namespace lockstep::transports {

class LoopbackWorld {
 public:
  // `capacity` messages a channel are copied at once, and their sends are done before anybody receives them. Further
  // ones wait with the sender; with 0 every send waits for its receive (rendezvous). The timeout is barrier()'s and
  // all_gather()'s.
  LoopbackWorld(int num_ranks, int capacity, std::chrono::nanoseconds timeout);
  ~LoopbackWorld();

  std::unique_ptr<Transport> endpoint(int rank);  // must not outlive the world
  // Ends all ranks: their next idle(), barrier() or all_gather() throws Error(rank_lost) with this reason.
  void abort(const std::string& reason);

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::transports
