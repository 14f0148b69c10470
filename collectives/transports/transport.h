// The Transport seam: bytes between ranks. One object is one rank's end; it is used by that rank's thread only.
// Called once a message, never once an element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep::transports {

// Names a message under way; meaningful only to the transport that made it.
struct Request {
  std::int64_t id = -1;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;  // "local", "mpi"
  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;

  // Starts a message. (from, to, channel) is a first-in first-out channel; the k-th send meets the k-th recv, whose
  // size must be equal. The memory stays untouched (send) or unread (recv) until done() has said so.
  virtual Request send(int peer, int channel, std::span<const std::byte> bytes) = 0;
  virtual Request recv(int peer, int channel, std::span<std::byte> bytes) = 0;
  // Whether the message is complete; makes progress. After true the request is spent and must not be asked again.
  virtual bool done(Request request) = 0;
  // What a rank does between two looks at messages that are not there yet: yields the core, and throws Error when the
  // run was aborted or a rank is lost. Callers keep the deadline.
  virtual void idle() = 0;

  // Coordination outside of what is measured. Both throw Error(timeout) at the world's deadline.
  virtual void barrier() = 0;
  // all[r] is what rank r gave; all.size() == num_ranks * mine.size(), the same on every rank.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
};

}  // namespace lockstep::transports
