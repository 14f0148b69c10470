#include <memory>
#include <string>
#include <utility>

#include "collectives/backends/lasting_memory.h"
#include "collectives/backends/mesh_kinds.h"
#include "collectives/backends/mesh_messages.h"
#include "collectives/executors/direct_executor.h"
#include "collectives/transports/local_world.h"
#include "collectives/transports/loopback.h"
#include "core/cores.h"
#include "core/error.h"
#include "core/ranks.h"

namespace lockstep::backends {
namespace {

using transports::LocalGroup;
using transports::LocalWorld;

constexpr int kAnyNumber = 1 << 30;  // messages in a mailbox: unlimited

// Runs collectives by direct access to peers' memory: they are done when run() returns.
class CpuMeshDevice final : public MeshDevice {
 public:
  CpuMeshDevice(const MeshOptions& options, LastingMemory& memory, const ChannelWorlds& worlds)
      : options_(options), worlds_(worlds), device_(rank_device(options, memory.allocator())) {}

  core::Device& device() override { return *device_; }
  const MeshQueues* queues() override { return nullptr; }
  void settle() override {}
  Prepared prepare(std::size_t channel, const collectives::Operation& operation, std::string_view algorithm) override {
    return prepare_direct(options_, *worlds_[channel], operation, algorithm);
  }
  void leave() override {}

 private:
  const MeshOptions& options_;
  const ChannelWorlds& worlds_;
  const std::unique_ptr<core::Device> device_;
};

// State that all ranks share.
class LocalMesh {
 public:
  LocalMesh(const MeshOptions& options, std::span<const Channel> channels);
  void run_rank(int rank, const MeshBody& body);
  core::AbortFlag& abort() { return abort_; }

 private:
  transports::AmongGroups among(const Channel& channel);
  int waits_for(int rank) const;
  ChannelWorlds worlds_of(int rank);
  std::unique_ptr<MeshDevice> device_of(transports::World& all, const ChannelWorlds& worlds);

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

LocalMesh::LocalMesh(const MeshOptions& options, std::span<const Channel> channels)
    : options_(options),
      channels_(channels),
      num_threads_(options.num_ranks * options.threads_a_rank),
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

transports::AmongGroups LocalMesh::among(const Channel& channel) {
  return {channel, num_threads_, &abort_, links_ ? &*links_ : nullptr, [this](int rank) { return waits_for(rank); }};
}

int LocalMesh::waits_for(int rank) const {
  for (const auto& group : groups_) {
    if (const int peer = group->waits_for(rank); peer >= 0) return peer;
  }
  return -1;
}

ChannelWorlds LocalMesh::worlds_of(int rank) {
  ChannelWorlds worlds(channels_.size());
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    if (!is_member(channels_[c], rank)) continue;
    worlds[c] = std::make_unique<LocalWorld>(*groups_[c], index_in(channels_[c], rank));
  }
  return worlds;
}

std::unique_ptr<MeshDevice> LocalMesh::device_of(transports::World& all, const ChannelWorlds& worlds) {
  if (options_.device.nccl) return make_nccl_mesh_device(options_, all, group_worlds(worlds));
  if (options_.device.cuda) return make_cuda_mesh_device(options_, all, worlds);
  return std::make_unique<CpuMeshDevice>(options_, memory_, worlds);
}

void LocalMesh::run_rank(int rank, const MeshBody& body) {
  std::optional<MeshLinks> links;
  if (links_) links.emplace(MeshLinks{*options_.link, *links_});
  const auto policy = core::WaitPolicy::beside_work(num_threads_, num_cores_, options_.timeout);
  MeshMessages messages(messages_, rank, links, abort_, policy);
  const ChannelWorlds worlds = worlds_of(rank);
  const std::unique_ptr<MeshDevice> on = device_of(messages, worlds);
  const auto prepare_in = [&](std::size_t c, const collectives::Operation& operation, std::string_view algorithm) {
    LOCKSTEP_CHECK(worlds.at(c) != nullptr, "this rank is no member of the channel");
    return on->prepare(c, operation, algorithm);
  };
  MeshRank mesh_rank{messages,     on->device(),         abort_, on->queues() == nullptr, prepare_in,
                     on->queues(), [&] { on->settle(); }};
  body(mesh_rank);
  on->leave();
}

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
  auto collective = executors::make_direct(plan, operation, world, {});
  std::string label = plan.algorithm;
  return {std::move(collective), std::move(label), "direct", std::move(plan)};
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
