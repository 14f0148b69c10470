#include "collectives/backends/nccl_backend.h"

#include "collectives/backends/gpu_places.h"
#include "collectives/backends/host_places.h"
#include "collectives/libraries/nccl_library.h"
#include "collectives/transports/local_world.h"
#include "collectives/transports/mpi_transport.h"
#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::backends {
namespace {

// Each rank has a GPU of its own; join_nccl() refuses what is shared.
void run_rank(transports::World& world, std::chrono::nanoseconds timeout, const std::function<void(Endpoint&)>& body) {
  const HostPlaces places = host_places(world);
  const int gpus = static_cast<int>(core::cuda_devices().size());
  const GpuPlace place = gpu_place(places.rank_of_host, places.ranks_of_host, gpus);
  const auto device = core::make_cuda_device(place.device, world.rank(), timeout);
  const auto stream = device->make_stream();
  const auto group = libraries::join_nccl(world, *device, timeout);
  const auto prepare = [&](const collectives::Operation& operation, std::string_view algorithm) -> Prepared {
    if (algorithm != kLibrary) {
      throw core::usage_error("--algo '" + std::string(algorithm) +
                              "': the nccl transport runs NCCL's own collectives; allowed: library");
    }
    return {group->prepare(operation, *stream), std::string(kLibrary), "library", std::nullopt};
  };
  Endpoint endpoint{world, *device, *stream, prepare, [&] { group->wait(*stream); }};
  body(endpoint);
}

}  // namespace

std::optional<std::string> nccl_absence() {
  return libraries::why_no_nccl();
}

void run_nccl(const BackendOptions& options, const std::function<void(Endpoint&)>& body) {
  if (options.mpi != nullptr) return run_rank(*options.mpi->make_transport(), options.timeout, body);
  const int gpus = static_cast<int>(core::cuda_devices().size());
  if (options.num_ranks > gpus) {
    throw core::usage_error("--ranks " + std::to_string(options.num_ranks) +
                            ": NCCL needs a GPU a rank, and there are " + std::to_string(gpus));
  }
  transports::LocalOptions local;
  local.num_ranks = options.num_ranks;
  local.deadline = options.timeout;
  local.bind = false;
  transports::LocalGroup group(local);
  group.run([&](transports::LocalWorld& world) { run_rank(world, options.timeout, body); });
}

}  // namespace lockstep::backends
