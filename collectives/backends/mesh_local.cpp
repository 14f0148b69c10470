// A mesh of local ranks: its messages, its collectives on the CPU, and the run of its ranks.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "collectives/backends/backend_kinds.h"
#include "collectives/executors/executors.h"
#include "collectives/transports/local_world.h"
#include "collectives/transports/paced_link.h"
#include "collectives/transports/transport.h"
#include "core/error.h"
#include "core/ranks.h"
#include "core/wait.h"

namespace lockstep::backends {

using transports::LocalGroup;
using transports::LocalWorld;
using transports::now_ns;
using transports::Request;

namespace {

int channel_of_times(int channel) {
  return 2 * channel;
}
int channel_of_bytes(int channel) {
  return 2 * channel + 1;
}

// Emulated ports by rank. The sender reserves its port at once, and sends the arrival time with the message.
struct MeshLinks {
  transports::LinkSpec spec;
  transports::LinkTable& table;
};

// Messages between ranks of a local mesh: mailboxes, paced by the emulated link, and waits that yield the core to
// threads that compute.
class MeshMessages final : public transports::Transport {
 public:
  // `world`'s mailboxes hold any number of messages.
  MeshMessages(transports::LoopbackWorld& world, int rank, std::optional<MeshLinks> links, const core::AbortFlag& abort,
               const core::WaitPolicy& policy)
      : world_(world), inner_(world.endpoint(rank)), links_(std::move(links)), abort_(abort), policy_(policy) {}

  std::string_view name() const override { return "local"; }
  int rank() const override { return inner_->rank(); }
  int num_ranks() const override { return inner_->num_ranks(); }
  void barrier() override { inner_->barrier(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override { inner_->all_gather(mine, all); }

  Request send(int peer, int channel, std::span<const std::byte> bytes) override {
    idle_rounds_ = 0;
    if (!links_) return inner_->send(peer, channel, bytes);
    const std::int64_t now = now_ns();
    const bool travels = peer != rank();
    const std::int64_t due =
        travels ? links_->table.book(rank(), peer, static_cast<std::int64_t>(bytes.size()), now) : now;
    PacedMessage flight;
    flight.parts = {inner_->send(peer, channel_of_times(channel), std::as_bytes(std::span(&due, 1))),
                    inner_->send(peer, channel_of_bytes(channel), bytes)};
    flight.due_ns = travels ? due - transports::latency_ns(links_->spec) : now;
    flights_.emplace(next_request_, flight);
    return {next_request_++};
  }

  Request recv(int peer, int channel, std::span<std::byte> bytes) override {
    idle_rounds_ = 0;
    if (!links_) return inner_->recv(peer, channel, bytes);
    PacedMessage& flight = flights_[next_request_];
    const auto due = std::as_writable_bytes(std::span(&flight.due_ns, 1));
    flight.parts = {inner_->recv(peer, channel_of_times(channel), due),
                    inner_->recv(peer, channel_of_bytes(channel), bytes)};
    return {next_request_++};
  }

  // For a paced message: true when it has left the sender, or reached the receiver.
  bool done(Request request) override {
    if (!links_) {
      const bool is_done = inner_->done(request);
      if (is_done) idle_rounds_ = 0;
      return is_done;
    }
    const auto found = flights_.find(request.id);
    LOCKSTEP_CHECK(found != flights_.end(), "this request is spent");
    if (!landed(found->second) || found->second.due_ns > now_ns()) return false;
    flights_.erase(found);
    idle_rounds_ = 0;
    return true;
  }

  void idle() override {
    if (abort_.raised()) abort_.throw_raised();
    if (idle_rounds_++ == 0) idle_since_ = core::Clock::now();
    if (policy_.yields()) {
      inner_->idle();
    } else {
      nap();
    }
  }

  void abandon() override { inner_->abandon(); }

 private:
  // A paced message has two parts, each a message of its own: the time at which it is due, and its bytes.
  struct PacedMessage {
    std::array<Request, 2> parts;
    std::size_t parts_done = 0;
    std::int64_t due_ns = 0;
  };
  bool landed(PacedMessage& flight) {
    while (flight.parts_done < flight.parts.size() && inner_->done(flight.parts[flight.parts_done])) {
      ++flight.parts_done;
    }
    return flight.parts_done == flight.parts.size();
  }

  // Earliest due time of messages that have landed.
  std::int64_t next_due_ns() const {
    std::int64_t next = std::numeric_limits<std::int64_t>::max();
    for (const auto& [request, flight] : flights_) {
      if (flight.parts_done == flight.parts.size()) next = std::min(next, flight.due_ns);
    }
    return next;
  }

  // Sleeps briefly, as the rank may also wait for something other than a message.
  void nap() {
    constexpr auto kSoon = std::chrono::milliseconds(1);
    constexpr std::int64_t kShortNs = 50'000;
    constexpr std::int64_t kLongNs = 200'000;
    const std::int64_t longest = core::Clock::now() - idle_since_ < kSoon ? kShortNs : kLongNs;
    const std::int64_t until_due = links_ ? next_due_ns() - now_ns() : longest;
    if (until_due > 0) world_.nap(rank(), std::chrono::nanoseconds(std::min(longest, until_due)));
  }

  transports::LoopbackWorld& world_;
  std::unique_ptr<transports::Transport> inner_;
  const std::optional<MeshLinks> links_;
  const core::AbortFlag& abort_;
  const core::WaitPolicy policy_;
  std::map<std::int64_t, PacedMessage> flights_;  // with links only, by request
  std::int64_t next_request_ = 0;
  std::int64_t idle_rounds_ = 0;  // since a message moved
  core::Clock::time_point idle_since_{};
};

constexpr int kAnyNumber = 1 << 30;  // messages in a mailbox: unlimited

// State that all ranks share.
class LocalMesh {
 public:
  LocalMesh(const MeshOptions& options, std::span<const Channel> channels)
      : options_(options),
        channels_(channels),
        num_threads_(options.num_ranks * options.threads_per_rank),
        num_cores_(core::usable_cores()),
        memory_(abort_),
        ports_(static_cast<std::size_t>(options.num_ranks)),
        messages_(options.num_ranks, kAnyNumber, options.timeout, &abort_) {
    if (options.link) links_.emplace(*options.link, ports_.data());
    for (const Channel& channel : channels) {
      transports::LocalOptions group;
      group.num_ranks = static_cast<int>(channel.size());
      // Scratch is allocated once its size is known. This memory holds, with links, the completion time of each
      // instruction.
      group.memory_bytes_per_rank = options.link ? std::size_t{64} << 20 : std::size_t{1} << 20;
      group.deadline = options.timeout;
      group.bind = false;
      group.among = among(channel);
      groups_.push_back(std::make_unique<LocalGroup>(group));
    }
  }

  void run_rank(int rank, const MeshBody& body) {
    std::optional<MeshLinks> links;
    if (links_) links.emplace(MeshLinks{*options_.link, *links_});
    const auto policy = core::WaitPolicy::beside_work(num_threads_, num_cores_, options_.timeout);
    MeshMessages messages(messages_, rank, links, abort_, policy);
    const ChannelWorlds worlds = worlds_of(rank);
    const std::unique_ptr<MeshDevice> on = device_of(messages, worlds);
    run_mesh_rank(*on, messages, abort_, /*threaded=*/true, memberships(worlds), body);
  }

  core::AbortFlag& abort() { return abort_; }

 private:
  transports::AmongGroups among(const Channel& channel) {
    return {channel, num_threads_, &abort_, links_ ? &*links_ : nullptr, [this](int rank) { return waits_for(rank); }};
  }

  int waits_for(int rank) const {
    for (const auto& group : groups_) {
      if (const int peer = group->waits_for(rank); peer >= 0) return peer;
    }
    return -1;
  }

  ChannelWorlds worlds_of(int rank) {
    ChannelWorlds worlds(channels_.size());
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      if (!is_member(channels_[c], rank)) continue;
      worlds[c] = std::make_unique<LocalWorld>(*groups_[c], index_in(channels_[c], rank));
    }
    return worlds;
  }

  std::unique_ptr<MeshDevice> device_of(transports::World& all, const ChannelWorlds& worlds) {
    if (options_.device.nccl) return make_nccl_mesh_device(options_, all, group_worlds(worlds));
    if (options_.device.cuda) return make_cuda_mesh_device(options_, all, worlds);
    return make_cpu_mesh_device(
        options_, memory_, [&](std::size_t c, const collectives::Operation& operation, std::string_view algorithm) {
          return prepare_direct(options_, *worlds[c], operation, algorithm);
        });
  }

  const MeshOptions& options_;
  const std::span<const Channel> channels_;
  const int num_threads_;
  const int num_cores_;
  core::AbortFlag abort_;
  LastingMemory memory_;
  std::vector<transports::LinkTable::Port> ports_;  // [rank]
  std::optional<transports::LinkTable> links_;
  transports::LoopbackWorld messages_;
  std::vector<std::unique_ptr<LocalGroup>> groups_;  // [channel]
};

// Adds the rank to the error, unless its text names one. A user's mistake belongs to no rank.
core::Error of_rank(int rank, const core::Error& error) {
  const std::string text = error.what();
  if (error.failure() == core::Failure::usage || text.starts_with("rank ")) return error;
  return {error.failure(), "rank " + std::to_string(rank) + ": " + text};
}

}  // namespace

Prepared prepare_direct(const MeshOptions& options, transports::LocalWorld& world,
                        const collectives::Operation& operation, std::string_view algorithm) {
  plan::Plan plan = mesh_plan(options, "local", operation, world.num_ranks(), algorithm);
  return prepared_plan(executors::make_direct(plan, operation, world, {}), "direct", std::move(plan));
}

void run_local_mesh(const MeshOptions& options, std::span<const Channel> channels, const MeshBody& body) {
  LocalMesh mesh(options, channels);
  core::run_ranks(core::Sharing::threads, options.num_ranks, mesh.abort(), [&](int rank) {
    try {
      mesh.run_rank(rank, body);
    } catch (const core::Error& error) {
      throw of_rank(rank, error);
    }
  });
}

}  // namespace lockstep::backends
