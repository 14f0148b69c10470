// Collectives of emulated devices: real messages that take as long as stated ones would.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "collectives/collective.h"
#include "collectives/transports/paced_link.h"
#include "collectives/transports/transport.h"
#include "core/wait.h"
#include "schedules/step/step.h"
#include "simulator/emulated/emulated_run.h"

namespace lockstep::simulator {

// A Transport among the members of a group whose messages take as long as on a stated link and represent more bytes
// than they have.
//
// The sender books each message on the link in its virtual time of this collective, which advances from arrival to
// arrival: after a late wake-up the next message still leaves when it was due, so wake-up times do not add up along a
// chain of messages. Each message contains its arrival time.

class PacedTransport final : public transports::Transport {
 public:
  // `inner`: a transport used by this object alone, whose mailboxes copy messages immediately. `members`: the group's
  // ranks. Uses the channels of `inner` from `first_channel` on.
  PacedTransport(std::unique_ptr<transports::Transport> inner, transports::LinkTable& links, core::AbortFlag& abort,
                 std::vector<std::int32_t> members, int first_channel);

  // Call before a collective: when this rank enters it, and the number of bytes that each byte of a message represents.
  void start(std::int64_t ready_ns, double stated_bytes_a_byte);
  // This rank's virtual time: the time of the last arrival.
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

// The collectives of one rank of an emulated run: the message executor runs their Plans over paced links. Small buffers
// represent the stated bytes; their contents are checked after each call.

class EmulatedCollectives {
 public:
  // Prepares all collectives that the rank's tasks name. The arguments have to outlive this object.
  EmulatedCollectives(const schedules::Step& step, std::int32_t rank, const EmulationOptions& options,
                      transports::LoopbackWorld& world, transports::LinkTable& links, core::AbortFlag& abort);

  struct Ran {
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
  };
  // Runs the collective from `ready_ns` on; returns when it has ended. Calls for different lanes may be concurrent.
  Ran run(const schedules::Task& task, std::int64_t ready_ns);

 private:
  struct Prepared {
    std::unique_ptr<PacedTransport> transport;
    collectives::Operation operation = {};
    std::unique_ptr<collectives::Collective> collective = {};
    std::vector<float> input = {};
    std::vector<float> output = {};
  };
  using Key = std::tuple<schedules::Lane, std::int32_t, schedules::Comm>;  // lane, group
  static Key key_of(const schedules::Task& task) { return {task.lane, task.peer, task.comm}; }

  std::map<Key, Prepared> prepared_;
};

}  // namespace lockstep::simulator
