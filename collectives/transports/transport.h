// Transports: how one rank's messages reach the others, and the world of ranks in which it has its number.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/wait.h"

namespace lockstep::transports {

// The world of one rank: its number, the number of ranks, and how ranks meet outside of the measured part.

class World {
 public:
  virtual ~World() = default;
  virtual std::string_view name() const = 0;  // "local", "mpi"
  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;
  // Number of a rank of this world in messages: if the world is a group among more ranks, its number among all.
  virtual int number_of(int rank) const { return rank; }

  // barrier() and all_gather() throw Error(timeout) at the world's deadline, and the abort's Error if a rank has failed
  // or is lost.
  virtual void barrier() = 0;
  // Throws the abort's Error if a rank has failed; for waits other than the two above.
  virtual void check() {}
  // all[r] is rank r's `mine`; all.size() == num_ranks * mine.size(), the same on every rank.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
};

// Returns [rank] the value that the rank passed.
template <class T>
std::vector<T> all_gather_value(World& world, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>, "values travel as bytes");
  std::vector<T> all(static_cast<std::size_t>(world.num_ranks()));
  world.all_gather(std::as_bytes(std::span<const T>(&mine, 1)), std::as_writable_bytes(std::span<T>(all)));
  return all;
}

// Transport: the interface for bytes between ranks. One object is one rank's end; it is used by that rank's thread
// only. Virtual calls happen once per message, never once per element.

// A message to or from a peer, which may be the rank itself.
struct PeerBytes {
  int peer;
  std::byte* memory;
  std::size_t size_bytes;
};

// Identifies a message in flight; meaningful only to the transport that made it.
struct Request {
  std::int64_t id = -1;
};

class Transport : public World {
 public:
  // Starts a message. (from, to, channel) is a first-in first-out channel; the k-th send matches the k-th recv, whose
  // size must be equal. The memory must not be written (send) or read (recv) until done() returns true.
  virtual Request send(int peer, int channel, std::span<const std::byte> bytes) = 0;
  virtual Request recv(int peer, int channel, std::span<std::byte> bytes) = 0;
  // Returns whether the message is complete; makes progress. After true the request must not be used again.
  virtual bool done(Request request) = 0;
  // Called by a rank between two polls of messages that are not complete: yields the core, and throws Error if the run
  // was aborted or a rank is lost. Callers keep the deadline.
  virtual void idle() = 0;
  // Call it when a deadline has passed, for the error's text: "; rank 2 does not answer" for each rank that does not
  // call it at about the same time. Takes up to a second. Empty if all do, or if this transport cannot ask.
  virtual std::string find_silent() { return {}; }
  // After an Error: ends all access of messages in flight to this rank's memory. The transport is unusable from then
  // on. (If that cannot be guaranteed, as in MPI, the program has to end.)
  virtual void abandon() {}
};

// A Transport between threads of one process: mailboxes of a fixed capacity per channel. For ranks that are threads,
// for tests of message executors, and to study how a transport's buffering affects a plan. A message whose receive is
// posted before it is sent is copied once, others twice.

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
