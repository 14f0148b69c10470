// Ranks of a local mesh on CUDA devices, of which several may share one: their collectives are run by kernels of ours.
//
// Such a kernel waits for those of other ranks, so that the blocks of all that wait for each other must be able to run
// at once: each rank on a device, and each of its streams that has collectives, has multiprocessors of its own in the
// count. Kernels that compute may be queued before, and take these multiprocessors for a while. They wait for nobody,
// so they end; and as what is queued behind them is finite (the host queues no further than the step's end), a block
// that waits for a place gets one.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backends/cuda_reach.h"
#include "collectives/backends/mesh_kinds.h"
#include "collectives/backends/mesh_queues.h"
#include "collectives/backends/places.h"
#include "collectives/executors/cuda/cuda_ranks.h"
#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::backends {
namespace {

// Of all ranks of this process.
GpuPlace place_of(const MeshOptions& options, int rank, int gpus) {
  if (options.device.index < 0) return gpu_place(rank, options.num_ranks, gpus);
  return {.device = options.device.index, .ranks_on_it = options.num_ranks};
}

// Of each collective of a rank, `side_by_side` of which may run at the same time.
int blocks_of(const core::CudaDeviceInfo& gpu, int ranks_on_it, int side_by_side) {
  const auto blocks = blocks_of_a_rank(gpu.num_multiprocessors, ranks_on_it * side_by_side);
  if (blocks) return ranks_on_it == 1 ? std::min(*blocks, kBlocksAlone) : *blocks;
  throw core::usage_error("--device cuda: " + std::to_string(ranks_on_it) + " ranks would share " + gpu.name +
                          ", with " + std::to_string(side_by_side) +
                          " collectives of each at once; allowed: together at most two for each of its " +
                          std::to_string(gpu.num_multiprocessors) + " multiprocessors");
}

// Streams that share a connection to the GPU hold each other up, and a kernel that waits for another rank's would wait
// forever if that one, or a copy that its rank's thread waits for, stood behind it. The driver makes 32 connections at
// most (core/cuda_inventory.cpp asks for them), for the streams of all ranks of this process. A rank has one for
// kernels, those of its collectives, two for messages, and the device's own for copies. Where that is too much,
// collectives follow the kernels.
std::vector<int> queues_that_fit(const MeshOptions& options, std::size_t num_channels, int ranks_on_it) {
  constexpr int kConnections = 32;
  constexpr int kOtherStreams = 4;
  const int streams = collectives_side_by_side(options.queue_of_channel, num_channels) + kOtherStreams;
  return ranks_on_it * streams <= kConnections ? options.queue_of_channel : std::vector<int>{};
}

std::vector<bool> memberships(const ChannelWorlds& worlds) {
  std::vector<bool> is_member;
  for (const auto& world : worlds) is_member.push_back(world != nullptr);
  return is_member;
}

core::CudaDeviceInfo gpu_of(int device) {
  for (core::CudaDeviceInfo& gpu : core::cuda_devices()) {
    if (gpu.index == device) return std::move(gpu);
  }
  throw core::usage_error(
      "--device cuda:" + std::to_string(device) +
      ": there is no such GPU; allowed: cuda:0 to cuda:" + std::to_string(core::cuda_devices().size() - 1));
}

// The ranks of a local mesh are of one process, and so a device's number names it.
bool one_device(transports::World& all, int device) {
  const std::vector<int> devices = transports::all_gather_value(all, device);
  return std::all_of(devices.begin(), devices.end(), [device](int its) { return its == device; });
}

class CudaMeshDevice final : public MeshDevice {
 public:
  CudaMeshDevice(const MeshOptions& options, transports::World& all, const ChannelWorlds& worlds)
      : options_(options), all_(all), worlds_(worlds), ranks_(worlds.size()) {
    const GpuPlace place = place_of(options, all.rank(), static_cast<int>(core::cuda_devices().size()));
    const core::CudaDeviceInfo gpu = gpu_of(place.device);
    device_ = core::make_cuda_device(place.device, all.rank(), options.timeout);
    const std::vector<int> queues = queues_that_fit(options, worlds.size(), place.ranks_on_it);
    streams_.emplace(*device_, core::make_urgent_stream, queues, memberships(worlds));
    const int side_by_side = collectives_side_by_side(queues, worlds.size());
    // Kernels give up first, as they can say for whom they have waited.
    const executors::CudaOptions cuda{.timeout = options.timeout / 2,
                                      .most_blocks = blocks_of(gpu, place.ranks_on_it, side_by_side),
                                      .one_device = one_device(all, place.device)};
    // In the order of channels on every rank: members of each make theirs at the same time.
    for (std::size_t c = 0; c < worlds.size(); ++c) {
      if (worlds[c] == nullptr) continue;
      ranks_[c].emplace(*worlds[c], *device_, streams_->of_channel(c),
                        reach_peers(*worlds[c], {.rank = all.rank(), .device = place.device}), cuda);
    }
  }

  core::Device& device() override { return *device_; }
  const MeshQueues* queues() override { return &streams_->queues(); }
  void settle() override {
    streams_->synchronize();
    for (const auto& ranks : ranks_) {
      if (ranks) ranks->check();
    }
  }
  Prepared prepare(std::size_t channel, const collectives::Operation& operation, std::string_view algorithm) override {
    plan::Plan plan = mesh_plan(options_, "cuda", operation, worlds_[channel]->num_ranks(), algorithm);
    auto collective = ranks_[channel]->prepare(plan, operation);
    std::string label = plan.algorithm;
    return {std::move(collective), std::move(label), "cuda", std::move(plan)};
  }
  // Kernels of peers use this rank's memory until they have all ended.
  void leave() override {
    settle();
    for (auto& ranks : ranks_) {
      if (ranks) ranks->disband();
    }
    all_.barrier();
  }

 private:
  const MeshOptions& options_;
  transports::World& all_;
  const ChannelWorlds& worlds_;
  std::unique_ptr<core::Device> device_;
  std::optional<RankStreams> streams_;
  std::vector<std::optional<executors::CudaRanks>> ranks_;  // [channel]
};

}  // namespace

std::unique_ptr<MeshDevice> make_cuda_mesh_device(const MeshOptions& options, transports::World& all,
                                                  const ChannelWorlds& worlds) {
  return std::make_unique<CudaMeshDevice>(options, all, worlds);
}

}  // namespace lockstep::backends
