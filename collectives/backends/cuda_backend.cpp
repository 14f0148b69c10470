#include "collectives/backends/backend_kinds.h"

#include <algorithm>
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

// True if all ranks are on this rank's GPU.
bool one_device(transports::World& world, const core::CudaDeviceInfo& gpu) {
  const auto all = transports::all_gather_value(world, gpu.uuid);
  return std::all_of(all.begin(), all.end(), [&](const auto& its) { return its == gpu.uuid; });
}

executors::CudaOptions executor_options(transports::World& world, const core::Device& device,
                                        const BackendOptions& wanted) {
  const std::vector<core::CudaDeviceInfo> gpus = core::cuda_devices();
  const HostPlacement places = host_placement(world);
  const GpuAssignment place = assigned_gpu(places.rank_of_host, places.ranks_of_host, static_cast<int>(gpus.size()));
  const core::CudaDeviceInfo& gpu = gpus.at(static_cast<std::size_t>(device.index()));
  const auto blocks = blocks_of_a_rank(gpu.num_multiprocessors, place.ranks_on_it, wanted.most_blocks);
  if (!blocks) {
    const int most = executors::kBlocksAMultiprocessor * gpu.num_multiprocessors;
    throw core::usage_error(std::to_string(place.ranks_on_it) + " ranks on " + gpu.name + " have room for " +
                            std::to_string(most) + " thread blocks together; allowed: --ranks for at least one each, " +
                            "and --blocks " + std::to_string(most / place.ranks_on_it) + " or less");
  }
  const int of_process = sharers_in_process(places, static_cast<int>(gpus.size()));
  if (of_process > kMostRanksOfAProcess) {
    throw core::usage_error("--ranks " + std::to_string(world.num_ranks()) + ": " + std::to_string(of_process) +
                            " ranks would share " + gpu.name +
                            ", whose kernels must run at the same time; allowed: at most " +
                            std::to_string(kMostRanksOfAProcess) + " per process");
  }
  // Kernels time out first, as they can name the rank that they waited for.
  return {.timeout = std::chrono::nanoseconds(wanted.timeout) / 2,
          .most_blocks = *blocks,
          .in_place_reads = places.one_process,
          .one_device = one_device(world, gpu),
          .packets_below_bytes = packets_below_bytes(wanted.protocol),
          .packets_only = wanted.protocol == "packets"};
}

class CudaMember final : public GpuMember {
 public:
  CudaMember(transports::World& world, RankGpu& gpu, const BackendOptions& wanted)
      : protocol_(wanted.protocol),
        most_blocks_(wanted.most_blocks),
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
  // Kernels of peers write to this rank's memory until all of them have ended.
  void leave() override { ranks_.disband(); }

 private:
  Prepared prepare(const collectives::Operation& operation, plan::Plan plan) {
    auto collective = ranks_.prepare(plan, operation);
    std::string label = plan.algorithm;
    if (protocol_ != "auto") label += ":protocol=" + protocol_;
    if (most_blocks_ > 0) label += ":blocks=" + std::to_string(most_blocks_);
    return {std::move(collective), std::move(label), "cuda", std::move(plan)};
  }

  const std::string protocol_;
  const int most_blocks_;
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
