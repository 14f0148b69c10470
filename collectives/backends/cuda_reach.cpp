#include "collectives/backends/cuda_reach.h"

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "collectives/backends/places.h"
#include "core/cuda_multicast.h"
#include "core/cuda_peers.h"
#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::backends {
namespace {

// The facts about its memory that a rank sends to the others.
struct Shown {
  Process process;
  int device;
  std::byte* memory;
  core::CudaIpcHandle handle;
};

struct Reach {
  transports::World& world;
  core::CudaPlace place;
  bool one_process;
  std::vector<core::OpenedMemory> opened = {};

  std::byte* address_of(const Shown& shown) {
    const Process mine = this_process();
    if (shown.process.number == mine.number) {
      core::allow_peer_access(place, shown.device);
      return shown.memory;
    }
    return opened.emplace_back(place, shown.handle).data();
  }

  std::vector<std::byte*> show(std::byte* mine) {
    Shown shown{.process = this_process(), .device = place.device, .memory = mine, .handle = {}};
    if (!one_process) shown.handle = core::ipc_handle_of(place, mine);
    std::vector<std::byte*> all;
    for (const Shown& its : transports::all_gather_value(world, shown)) all.push_back(address_of(its));
    return all;
  }
};

}  // namespace

executors::ReachPeers reach_peers(transports::World& world, core::CudaPlace place) {
  const HostPlaces places = host_places(world);
  if (!places.one_host) {
    throw core::usage_error(
        "--transport cuda: ranks are on several hosts, and kernels reach the memory of one host; allowed: --transport "
        "nccl");
  }
  const auto reach = std::make_shared<Reach>(Reach{.world = world, .place = place, .one_process = places.one_process});
  return [reach](std::byte* mine) { return reach->show(mine); };
}

namespace {

class SharedMulticast final : public executors::MulticastMemory {
 public:
  SharedMulticast(transports::World& world, core::CudaPlace place, std::size_t size_bytes) {
    const std::vector<int> devices = transports::all_gather_value(world, place.device);
    std::shared_ptr<const core::MulticastTeam> team;
    if (world.rank() == 0) team = std::make_shared<core::MulticastTeam>(place, devices, size_bytes);
    const auto& made = *transports::all_gather_value(world, &team).front();
    if (world.rank() != 0) team = made;
    replica_.emplace(place, team);
    world.barrier();  // all have joined
    replica_->bind();
    replicas = transports::all_gather_value(world, replica_->memory());
    multicast = replica_->multicast();
  }

 private:
  std::optional<core::MulticastReplica> replica_;
};

core::Error no_multimem(const std::string& why) {
  return core::usage_error("--protocol multimem: " + why + "; allowed: auto, simple, packets");
}

}  // namespace

executors::ShareMulticast share_multicast(transports::World& world, core::CudaPlace place) {
  if (!host_places(world).one_process)
    throw no_multimem("ranks are of several processes, and threads of one are needed");
  const std::vector<int> devices = transports::all_gather_value(world, place.device);
  if (std::set<int>(devices.begin(), devices.end()).size() < devices.size()) throw no_multimem("ranks share a GPU");
  for (const int has : transports::all_gather_value(world, core::cuda_has_multicast(place.device) ? 1 : 0)) {
    if (has == 0) throw no_multimem("there is no NVLink switch between the GPUs that copies and reduces");
  }
  return
      [&world, place](std::size_t size_bytes) { return std::make_unique<SharedMulticast>(world, place, size_bytes); };
}

}  // namespace lockstep::backends
