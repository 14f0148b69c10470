#include "collectives/backends/cuda_reach.h"

#include <memory>
#include <string>

#include "collectives/backends/places.h"
#include "core/cuda_peers.h"
#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::backends {
namespace {

// Facts about its memory that a rank sends to the others.
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
  const HostPlacement places = host_placement(world);
  if (!places.one_host) {
    throw core::usage_error(
        "--transport cuda: ranks are on several hosts, and kernels access the memory of one host only; allowed: "
        "--transport "
        "nccl");
  }
  const auto reach = std::make_shared<Reach>(Reach{.world = world, .place = place, .one_process = places.one_process});
  return [reach](std::byte* mine) { return reach->show(mine); };
}

}  // namespace lockstep::backends
