// Code that the local mesh and the MPI mesh share: see mesh.h.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/backends/mesh.h"
#include "collectives/transports/local_world.h"
#include "core/device_cpu.h"

namespace lockstep::backends {

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

// Makes a rank's device on the CPU.
std::unique_ptr<core::Device> rank_device(const MeshOptions& options, core::HostAllocator allocator);

bool is_member(const Channel& channel, int rank);
int index_in(const Channel& channel, int rank);  // the rank must be a member

// Makes the plan of an algorithm as a user writes it, "auto" included. `transport` is its name in the tuning table.
plan::Plan mesh_plan(const MeshOptions& options, std::string_view transport, const collectives::Operation& operation,
                     int num_members, std::string_view algorithm);

}  // namespace lockstep::backends
