#include "collectives/backends/backend_kinds.h"

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backends/cuda_reach.h"
#include "collectives/backends/places.h"
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

executors::CudaOptions executor_options(transports::World& world, const core::Device& device,
                                        const BackendOptions& wanted) {
  const std::vector<core::CudaDeviceInfo> gpus = core::cuda_devices();
  const HostPlaces places = host_places(world);
  const GpuPlace place = gpu_place(places.rank_of_host, places.ranks_of_host, static_cast<int>(gpus.size()));
  const core::CudaDeviceInfo& gpu = gpus.at(static_cast<std::size_t>(device.index()));
  const auto blocks = blocks_of_a_rank(gpu.num_multiprocessors, place.ranks_on_it);
  if (!blocks) {
    throw core::usage_error("--ranks " + std::to_string(world.num_ranks()) + ": " + std::to_string(place.ranks_on_it) +
                            " ranks would share " + gpu.name + "; allowed: one for each of its " +
                            std::to_string(gpu.num_multiprocessors) + " multiprocessors");
  }
  if (places.one_process && place.ranks_on_it > kMostRanksOfAProcess) {
    throw core::usage_error("--ranks " + std::to_string(world.num_ranks()) + ": " + std::to_string(place.ranks_on_it) +
                            " ranks would share " + gpu.name + ", whose kernels must run at the same time; allowed: " +
                            std::to_string(kMostRanksOfAProcess) + " of a process");
  }
  // Kernels give up first, as they can say for whom they have waited.
  return {.timeout = std::chrono::nanoseconds(wanted.timeout) / 2,
          .most_blocks = *blocks,
          .in_place_reads = places.one_process,
          .packets_below_bytes = packets_below_bytes(wanted.protocol),
          .packets_only = wanted.protocol == "packets"};
}

class CudaMember final : public GpuMember {
 public:
  CudaMember(transports::World& world, RankGpu& gpu, const BackendOptions& wanted)
      : protocol_(wanted.protocol),
        options_(executor_options(world, *gpu.device, wanted)),
        ranks_(world, *gpu.device, *gpu.stream,
               reach_peers(world, {.rank = world.rank(), .device = gpu.device->index()}), options_),
        endpoint_{world,
                  *gpu.device,
                  *gpu.stream,
                  [this](const collectives::Operation& operation, plan::Plan plan) {
                    return prepare(operation, std::move(plan));
                  },
                  nullptr,
                  [stream = gpu.stream.get()] { stream->synchronize(); },
                  [this] { ranks_.check(); }} {}

  Endpoint& endpoint() override { return endpoint_; }
  // Kernels of peers write to this rank's memory until they have all ended.
  void leave() override { ranks_.disband(); }

 private:
  Prepared prepare(const collectives::Operation& operation, plan::Plan plan) {
    auto collective = ranks_.prepare(plan, operation);
    std::string label = plan.algorithm;
    if (protocol_ != "auto") label += ":protocol=" + protocol_;
    return {std::move(collective), std::move(label), "cuda", std::move(plan)};
  }

  const std::string protocol_;
  const executors::CudaOptions options_;
  executors::CudaRanks ranks_;
  Endpoint endpoint_;
};

}  // namespace

std::optional<std::string> cuda_absence() {
  return core::why_no_cuda();
}

std::unique_ptr<GpuMember> join_cuda(transports::World& world, RankGpu& gpu, const BackendOptions& options) {
  return std::make_unique<CudaMember>(world, gpu, options);
}

}  // namespace lockstep::backends
