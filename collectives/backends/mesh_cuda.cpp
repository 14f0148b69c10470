// Ranks of a local mesh on CUDA devices, of which several may share one. Each rank has one stream, in which its kernels
// and the collectives of all its channels follow each other: every wait of one for the other is the stream's, and
// memory that is given back is free for what is queued later.
#include <optional>
#include <string>
#include <utility>

#include "collectives/backends/cuda_reach.h"
#include "collectives/backends/gpu_places.h"
#include "collectives/backends/mesh_kinds.h"
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

// Collectives of a rank run one at a time, so that all its channels share its thread blocks.
int blocks_of(const core::CudaDeviceInfo& gpu, int ranks_on_it) {
  const auto blocks = blocks_of_a_rank(gpu.num_multiprocessors, ranks_on_it);
  if (blocks) return *blocks;
  throw core::usage_error("--device cuda: " + std::to_string(ranks_on_it) + " ranks would share " + gpu.name +
                          "; allowed: one for each of its " + std::to_string(gpu.num_multiprocessors) +
                          " multiprocessors");
}

core::CudaDeviceInfo gpu_of(int device) {
  for (core::CudaDeviceInfo& gpu : core::cuda_devices()) {
    if (gpu.index == device) return std::move(gpu);
  }
  throw core::usage_error(
      "--device cuda:" + std::to_string(device) +
      ": there is no such GPU; allowed: cuda:0 to cuda:" + std::to_string(core::cuda_devices().size() - 1));
}

class CudaMeshDevice final : public MeshDevice {
 public:
  CudaMeshDevice(const MeshOptions& options, transports::World& all, const ChannelWorlds& worlds)
      : options_(options), all_(all), worlds_(worlds), ranks_(worlds.size()) {
    const GpuPlace place = place_of(options, all.rank(), static_cast<int>(core::cuda_devices().size()));
    const core::CudaDeviceInfo gpu = gpu_of(place.device);
    device_ = core::make_cuda_device(place.device, all.rank(), options.timeout);
    queue_ = device_->make_stream();
    // Kernels give up first, as they can say for whom they have waited.
    const executors::CudaOptions cuda{.timeout = options.timeout / 2, .most_blocks = blocks_of(gpu, place.ranks_on_it)};
    // In the order of channels on every rank: members of each make theirs at the same time.
    for (std::size_t c = 0; c < worlds.size(); ++c) {
      if (worlds[c] == nullptr) continue;
      ranks_[c].emplace(*worlds[c], *device_, *queue_,
                        reach_peers(*worlds[c], {.rank = all.rank(), .device = place.device}), cuda);
    }
  }

  core::Device& device() override { return *device_; }
  core::Stream* queue() override { return queue_.get(); }
  void settle() override {
    queue_->synchronize();
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
  std::unique_ptr<core::Stream> queue_;
  std::vector<std::optional<executors::CudaRanks>> ranks_;  // [channel]
};

}  // namespace

std::unique_ptr<MeshDevice> make_cuda_mesh_device(const MeshOptions& options, transports::World& all,
                                                  const ChannelWorlds& worlds) {
  return std::make_unique<CudaMeshDevice>(options, all, worlds);
}

}  // namespace lockstep::backends
