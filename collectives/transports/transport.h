// The Transport seam: bytes between ranks. One object is one rank's end; it is used by that rank's thread only.
// Called once a message, never once an element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/transports/world.h"

namespace lockstep::transports {

// Names a message under way; meaningful only to the transport that made it.
struct Request {
  std::int64_t id = -1;
};

class Transport : public World {
 public:
  // Starts a message. (from, to, channel) is a first-in first-out channel; the k-th send meets the k-th recv, whose
  // size must be equal. The memory stays untouched (send) or unread (recv) until done() has said so.
  virtual Request send(int peer, int channel, std::span<const std::byte> bytes) = 0;
  virtual Request recv(int peer, int channel, std::span<std::byte> bytes) = 0;
  // Whether the message is complete; makes progress. After true the request is spent and must not be asked again.
  virtual bool done(Request request) = 0;
  // Called by a rank between two looks at messages that are not there yet: yields the core, and throws Error when the
  // run was aborted or a rank is lost. Callers keep the deadline.
  virtual void idle() = 0;
  // After an Error: no message under way touches this rank's memory any more. The transport is unusable from then on.
  // (Where nothing can promise that, as in MPI, the program has to end.)
  virtual void abandon() {}
};

}  // namespace lockstep::transports
