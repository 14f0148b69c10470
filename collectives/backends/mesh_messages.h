// Messages between ranks of a local mesh: mailboxes, paced by the emulated link, and waits that yield the core to
// threads that compute.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "collectives/transports/loopback.h"
#include "collectives/transports/paced_link.h"
#include "collectives/transports/transport.h"
#include "core/gate.h"
#include "core/wait.h"

namespace lockstep::backends {

// Emulated ports by rank. The sender reserves its port at once, and sends the arrival time with the message.
struct MeshLinks {
  transports::LinkSpec spec;
  transports::LinkTable& table;
};

class MeshMessages final : public transports::Transport {
 public:
  // `world`'s mailboxes hold any number of messages.
  MeshMessages(transports::LoopbackWorld& world, int rank, std::optional<MeshLinks> links, const core::AbortFlag& abort,
               const core::WaitPolicy& policy);

  std::string_view name() const override { return "local"; }
  int rank() const override { return inner_->rank(); }
  int num_ranks() const override { return inner_->num_ranks(); }
  void barrier() override { inner_->barrier(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override { inner_->all_gather(mine, all); }

  transports::Request send(int peer, int channel, std::span<const std::byte> bytes) override;
  transports::Request recv(int peer, int channel, std::span<std::byte> bytes) override;
  // For a paced message: true when it has left the sender, or reached the receiver.
  bool done(transports::Request request) override;
  void idle() override;
  void abandon() override { inner_->abandon(); }

 private:
  // A paced message has two parts, each a message of its own: the time at which it is due, and its bytes.
  struct Flight {
    std::array<transports::Request, 2> parts;
    std::size_t parts_done = 0;
    std::int64_t due_ns = 0;
  };
  bool landed(Flight& flight);
  std::int64_t next_due_ns() const;  // earliest due time of messages that have landed
  void nap();

  transports::LoopbackWorld& world_;
  std::unique_ptr<transports::Transport> inner_;
  const std::optional<MeshLinks> links_;
  const core::AbortFlag& abort_;
  const core::WaitPolicy policy_;
  std::map<std::int64_t, Flight> flights_;  // with links only, by request
  std::int64_t next_request_ = 0;
  std::int64_t idle_rounds_ = 0;  // since a message moved
  core::Clock::time_point idle_since_{};
};

}  // namespace lockstep::backends
