// Transport: the interface for bytes between ranks. One object is one rank's end; it is used by that rank's thread
// only. Virtual calls happen once per message, never once per element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/transports/world.h"

namespace lockstep::transports {

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
  // After an Error: ends all access of messages in flight to this rank's memory. The transport is unusable from then
  // on. (If that cannot be guaranteed, as in MPI, the program has to end.)
  virtual void abandon() {}
};

}  // namespace lockstep::transports
