#include "collectives/backends/cuda_backend.h"

#include <cstdint>
#include <limits>

#include "collectives/backends/cuda_reach.h"
#include "collectives/backends/gpu_places.h"
#include "collectives/backends/gpu_ranks.h"
#include "collectives/backends/host_places.h"
#include "collectives/backends/plan_choice.h"
#include "collectives/executors/cuda/cuda_ranks.h"
#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::backends {
namespace {

std::int64_t packets_below_bytes(std::string_view protocol) {
  if (protocol == "simple") return 0;
  if (protocol == "packets") return std::numeric_limits<std::int64_t>::max();
  return executors::CudaOptions{}.packets_below_bytes;
}

void run_rank(transports::World& world, const BackendOptions& wanted, const std::function<void(Endpoint&)>& body) {
  const std::chrono::nanoseconds timeout = wanted.timeout;
  const std::vector<core::CudaDeviceInfo> gpus = core::cuda_devices();
  const HostPlaces places = host_places(world);
  const GpuPlace place = gpu_place(places.rank_of_host, places.ranks_of_host, static_cast<int>(gpus.size()));
  const core::CudaDeviceInfo& gpu = gpus.at(static_cast<std::size_t>(place.device));
  const auto blocks = blocks_of_a_rank(gpu.num_multiprocessors, place.ranks_on_it);
  if (!blocks) {
    throw core::usage_error("--ranks " + std::to_string(world.num_ranks()) + ": " + std::to_string(place.ranks_on_it) +
                            " ranks would share " + gpu.name + "; allowed: one for each of its " +
                            std::to_string(gpu.num_multiprocessors) + " multiprocessors");
  }
  const auto device = core::make_cuda_device(place.device, world.rank(), timeout);
  const auto stream = device->make_stream();
  // Kernels give up first, as they can say for whom they have waited.
  const executors::CudaOptions options{.timeout = timeout / 2,
                                       .most_blocks = *blocks,
                                       .in_place_reads = places.one_process,
                                       .packets_below_bytes = packets_below_bytes(wanted.protocol),
                                       .packets_only = wanted.protocol == "packets"};
  executors::CudaRanks ranks(world, *device, *stream,
                             reach_peers(world, {.rank = world.rank(), .device = place.device}), options);
  const auto prepare = [&](const collectives::Operation& operation, std::string_view algorithm) -> Prepared {
    plan::Plan plan = plan_for(operation, world.num_ranks(), algorithm);
    auto collective = ranks.prepare(plan, operation);
    std::string label = plan.algorithm;
    if (wanted.protocol != "auto") label += ":protocol=" + std::string(wanted.protocol);
    return {std::move(collective), std::move(label), "cuda", std::move(plan)};
  };
  Endpoint endpoint{world, *device, *stream, prepare, [&] { stream->synchronize(); }, [&] { ranks.check(); }};
  body(endpoint);
  ranks.disband();  // kernels of peers write to this rank's memory until they have all ended
}

}  // namespace

std::optional<std::string> cuda_absence() {
  return core::why_no_cuda();
}

void run_cuda(const BackendOptions& options, const std::function<void(Endpoint&)>& body) {
  run_gpu_ranks(options, [&](transports::World& world) { run_rank(world, options, body); });
}

}  // namespace lockstep::backends
