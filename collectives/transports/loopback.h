// A Transport between threads of one process: mailboxes of a fixed capacity per channel. For ranks that are threads,
// for tests of message executors, and to study how a transport's buffering affects a plan. A message whose receive is
// posted before it is sent is copied once, others twice.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "collectives/transports/transport.h"
#include "core/gate.h"

namespace lockstep::transports {

class LoopbackWorld {
 public:
  // `capacity` messages per channel are copied at once, and their sends are done before they are received. Further ones
  // wait with the sender; with 0 every send waits for its receive (rendezvous). The timeout is barrier()'s and
  // all_gather()'s. `flag`: an abort flag of the caller's, which ends all ranks as abort() does.
  LoopbackWorld(int num_ranks, int capacity, std::chrono::nanoseconds timeout, const core::AbortFlag* flag = nullptr);
  ~LoopbackWorld();

  std::unique_ptr<Transport> endpoint(int rank);  // must not outlive the world
  // Ends all ranks: their next idle(), barrier() or all_gather() throws Error(rank_lost) with this reason.
  void abort(const std::string& reason);
  // Called by a rank that has checked its messages: sleeps until another message comes, at most `longest`. Returns at
  // once if one has come since it last returned.
  void nap(int rank, std::chrono::nanoseconds longest);

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace lockstep::transports
