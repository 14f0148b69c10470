// Functions of each backend: the rows of backend.cpp's table. See backend.h.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/backends/backend.h"
#include "collectives/backends/mesh.h"
#include "collectives/transports/local_world.h"
#include "core/device.h"
#include "core/wait.h"

namespace lockstep::backends {

void run_local(const BackendOptions& options, const std::function<void(Endpoint&)>& body);

std::optional<std::string> mpi_absence();
void run_mpi(const BackendOptions& options, const std::function<void(Endpoint&)>& body);

std::optional<std::string> cuda_absence();
std::unique_ptr<GpuMember> join_cuda(transports::World& world, RankGpu& gpu, const BackendOptions& options);

std::optional<std::string> nccl_absence();
std::unique_ptr<GpuMember> join_nccl(transports::World& world, RankGpu& gpu, const BackendOptions& options);

// Memory of ranks that fail is kept until all ranks have ended, as peers may be reading it, or a message may be writing
// to it.

class LastingMemory {
 public:
  explicit LastingMemory(const core::AbortFlag& abort) : abort_(abort) {}
  ~LastingMemory() {
    for (const auto& [memory, size_bytes] : kept_) private_.release(memory, size_bytes);
  }
  LastingMemory(const LastingMemory&) = delete;
  LastingMemory& operator=(const LastingMemory&) = delete;

  core::HostAllocator allocator() {
    return {private_.allocate, [this](void* memory, std::size_t size_bytes) { release(memory, size_bytes); }};
  }

 private:
  void release(void* memory, std::size_t size_bytes) {
    if (!abort_.raised() && std::uncaught_exceptions() == 0) return private_.release(memory, size_bytes);
    const std::lock_guard lock(mutex_);
    kept_.emplace_back(memory, size_bytes);
  }

  const core::AbortFlag& abort_;
  const core::HostAllocator private_ = core::private_memory();
  std::mutex mutex_;
  std::vector<std::pair<void*, std::size_t>> kept_;
};

// Streams of a mesh's rank on a device that has streams: plain code over core::Device.

// Number of a rank's collectives that can be in flight at the same time: one for each stream that channels use. The
// same on all ranks, as they have to agree on each collective's share of a device.
int collectives_side_by_side(std::span<const int> queue_of_channel, std::size_t num_channels);

// Makes a stream for collectives.
using MakeStream = std::unique_ptr<core::Stream> (*)(core::Device& device);

class RankStreams {
 public:
  // Makes a stream for kernels, and one for each queue of channels that the rank is a member of. The device outlives
  // it.
  RankStreams(core::Device& device, MakeStream make_stream, std::span<const int> queue_of_channel,
              const std::vector<bool>& is_member_of_channel);

  const MeshQueues& queues() const { return queues_; }
  core::Stream& of_channel(std::size_t channel) const { return *queues_.of_channel[channel]; }
  void synchronize();  // returns when all enqueued work is done

 private:
  std::unique_ptr<core::Stream> compute_;
  std::map<int, std::unique_ptr<core::Stream>> of_queue_;
  MeshQueues queues_;
};

// Code that the local mesh and the MPI mesh share: see mesh.h.

using MeshBody = std::function<void(MeshRank&)>;
void run_local_mesh(const MeshOptions& options, std::span<const Channel> channels, const MeshBody& body);
void run_mpi_mesh(const MeshOptions& options, std::span<const Channel> channels, const MeshBody& body);

// One rank's device in a mesh, which also runs its collectives. All ranks make theirs at the same time, after their
// worlds, which outlive it.
class MeshDevice {
 public:
  virtual ~MeshDevice() = default;
  virtual core::Device& device() = 0;
  virtual const MeshQueues* queues() = 0;  // as MeshRank's
  virtual void settle() = 0;               // as MeshRank's
  virtual Prepared prepare(std::size_t channel, const collectives::Operation& operation,
                           std::string_view algorithm) = 0;
  virtual void leave() = 0;  // collective: all ranks call it at the end, unless one has failed
};
// [channel]; nullptr if the rank is not a member.
using ChannelWorlds = std::vector<std::unique_ptr<transports::LocalWorld>>;
std::unique_ptr<MeshDevice> make_cuda_mesh_device(const MeshOptions& options, transports::World& all,
                                                  const ChannelWorlds& worlds);
// [channel]; nullptr where the rank is no member.
using GroupWorlds = std::vector<transports::World*>;
template <class Worlds>
GroupWorlds group_worlds(const Worlds& worlds) {
  GroupWorlds groups;
  for (const auto& world : worlds) groups.push_back(world.get());
  return groups;
}
template <class Worlds>
std::vector<bool> memberships(const Worlds& worlds) {
  std::vector<bool> is_member;
  for (const auto& world : worlds) is_member.push_back(world != nullptr);
  return is_member;
}
// Calls join(channel, world) for what the rank is a member of, in the order of channels, which is the same on all
// ranks: where members of a channel wait for each other, one that is missing is in an earlier channel, and so there is
// always a channel in which all have come.
template <class Join>
void for_each_membership(const GroupWorlds& worlds, Join&& join) {
  for (std::size_t c = 0; c < worlds.size(); ++c) {
    if (worlds[c] != nullptr) join(c, *worlds[c]);
  }
}

// The same, with NCCL's collectives: for threads of a local mesh, and for processes of mpirun.
std::unique_ptr<MeshDevice> make_nccl_mesh_device(const MeshOptions& options, transports::World& all,
                                                  GroupWorlds worlds);

// Prepares a collective of ranks that are threads, by direct access to peers' memory: done when run() returns.
Prepared prepare_direct(const MeshOptions& options, transports::LocalWorld& world,
                        const collectives::Operation& operation, std::string_view algorithm);

// A rank's device on the CPU, whose collectives are done when run() returns.
using PrepareInChannel =
    std::function<Prepared(std::size_t channel, const collectives::Operation& operation, std::string_view algorithm)>;
std::unique_ptr<MeshDevice> make_cpu_mesh_device(const MeshOptions& options, LastingMemory& memory,
                                                 PrepareInChannel prepare);

// Runs the body on a rank that is a member of these channels; `threaded` as MeshRank's, for a device without streams.
void run_mesh_rank(MeshDevice& on, transports::Transport& messages, core::AbortFlag& abort, bool threaded,
                   const std::vector<bool>& is_member_of_channel, const MeshBody& body);

bool is_member(const Channel& channel, int rank);
int index_in(const Channel& channel, int rank);  // the rank must be a member

// Makes the plan of an algorithm as a user writes it, "auto" included. `transport` is its name in the tuning table.
plan::Plan mesh_plan(const MeshOptions& options, std::string_view transport, const collectives::Operation& operation,
                     int num_members, std::string_view algorithm);

}  // namespace lockstep::backends
