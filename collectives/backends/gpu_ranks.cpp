#include "collectives/backends/gpu_ranks.h"

#include "collectives/backends/gpu_places.h"
#include "collectives/backends/host_places.h"
#include "collectives/transports/local_world.h"
#include "collectives/transports/mpi_transport.h"
#include "core/error.h"

namespace lockstep::backends {

void run_gpu_ranks(const BackendOptions& options, const std::function<void(transports::World&)>& run_rank) {
  if (options.link) {
    throw core::usage_error("--link emulates links between local ranks; allowed with --transport local");
  }
  if (options.mpi != nullptr) return run_rank(*options.mpi->make_transport());
  transports::LocalOptions local;
  local.num_ranks = options.num_ranks;
  local.deadline = options.timeout;
  local.bind = false;
  transports::LocalGroup group(local);
  group.run([&](transports::LocalWorld& world) { run_rank(world); });
}

RankGpu open_gpu(transports::World& world, const BackendOptions& options) {
  const HostPlaces places = host_places(world);
  const int gpus = static_cast<int>(core::cuda_devices().size());
  const GpuPlace place = gpu_place(places.rank_of_host, places.ranks_of_host, gpus);
  RankGpu gpu;
  gpu.device = core::make_cuda_device(place.device, world.rank(), options.timeout);
  gpu.stream = gpu.device->make_stream();
  return gpu;
}

}  // namespace lockstep::backends
