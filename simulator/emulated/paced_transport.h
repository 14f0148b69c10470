// A Transport among the members of a group whose messages take as long as a stated link would, and stand for more bytes
// than they have.
//
// The sender books each message, in its time for this collective, which goes from arrival to arrival: when a rank was
// woken late, what it sends next leaves when it was due, not when it was sent. So wake-ups are not added up along a
// chain of messages. The message says when it arrives.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "collectives/transports/paced_link.h"
#include "collectives/transports/transport.h"
#include "core/gate.h"

namespace lockstep::simulator {

class PacedTransport final : public transports::Transport {
 public:
  // `inner`: an end of its own, whose mailboxes copy messages at once. `members`: its ranks, of which this is
  // `index`. Channels are those of `inner` from `first_channel` on.
  PacedTransport(std::unique_ptr<transports::Transport> inner, transports::LinkTable& links, core::AbortFlag& abort,
                 std::vector<std::int32_t> members, int first_channel);

  // Before a collective: when this rank comes to it, and how many bytes one of its messages' bytes stands for.
  void start(std::int64_t ready_ns, double stated_bytes_a_byte);
  // This rank's time: of the last arrival.
  std::int64_t time_ns() const { return time_ns_; }

  std::string_view name() const override { return "emulated"; }
  int rank() const override { return index_; }
  int num_ranks() const override { return static_cast<int>(members_.size()); }
  void barrier() override;
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  transports::Request send(int peer, int channel, std::span<const std::byte> bytes) override;
  transports::Request recv(int peer, int channel, std::span<std::byte> bytes) override;
  bool done(transports::Request request) override;
  void idle() override;

 private:
  using Header = std::int64_t;  // when the message arrives
  struct Incoming {
    transports::Request request;
    std::vector<std::byte> message = {};  // header and bytes
    std::span<std::byte> target = {};
    std::int64_t arrival_ns = -1;  // -1: has not come
  };

  std::int32_t member(int index) const { return members_[static_cast<std::size_t>(index)]; }

  std::unique_ptr<transports::Transport> inner_;
  transports::LinkTable& links_;
  core::AbortFlag& abort_;
  const std::vector<std::int32_t> members_;
  const int first_channel_;
  int index_ = 0;
  double stated_bytes_a_byte_ = 1;
  std::int64_t time_ns_ = 0;
  std::map<std::int64_t, Incoming> incoming_;  // by request
  std::int64_t next_request_ = 0;
};

}  // namespace lockstep::simulator
