// The backend of CUDA: memory that ranks show each other, its collectives on ranks of their own, and its meshes. Built
// with CUDA only.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backends/backend_kinds.h"
#include "collectives/backends/places.h"
#include "collectives/executors/cuda/cuda_ranks.h"
#include "collectives/transports/transport.h"
#include "core/cuda_call.h"
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
  core::CudaCaller place;
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

// Access to the device memory of other ranks: by its address within a process, by CUDA's IPC handles between processes
// of a host. Collective: all ranks make theirs at the same time, each with the device whose memory it shares. Throws a
// usage Error if ranks are on several hosts. Opened handles stay open as long as the returned function lives.
executors::ReachPeers reach_peers(transports::World& world, core::CudaCaller place) {
  const HostPlacement places = host_placement(world);
  if (!places.one_host) {
    throw core::usage_error(
        "--transport cuda: ranks are on several hosts, and kernels access the memory of one host only; allowed: "
        "--transport nccl");
  }
  const auto reach = std::make_shared<Reach>(Reach{.world = world, .place = place, .one_process = places.one_process});
  return [reach](std::byte* mine) { return reach->show(mine); };
}

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
    const int most = executors::kBlocksPerMultiprocessor * gpu.num_multiprocessors;
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
          .one_device = places.one_process && one_device(world, gpu),
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
  // Kernels of peers write to this rank's memory until they have all ended.
  void leave() override { ranks_.disband(); }

 private:
  Prepared prepare(const collectives::Operation& operation, plan::Plan plan) {
    Prepared prepared = prepared_plan(ranks_.prepare(plan, operation), "cuda", std::move(plan));
    if (protocol_ != "auto") prepared.algorithm += ":protocol=" + protocol_;
    if (most_blocks_ > 0) prepared.algorithm += ":blocks=" + std::to_string(most_blocks_);
    return prepared;
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

// Ranks of a local mesh on CUDA devices, which several may share; our kernels run their collectives.
//
// Such a kernel waits for the kernels of other ranks, so all blocks that wait for each other must be able to run at the
// same time: each rank on a device, and each of its streams that has collectives, is counted with multiprocessors of
// its own. Kernels that compute may be enqueued before, and occupy these multiprocessors for a while. They wait for no
// other kernel, and collectives, which have priority, leave them a quarter of the multiprocessors even if each block
// has one alone: so they end. As the work enqueued after them is finite (the host enqueues no further than the end of
// the step), a block that waits for a multiprocessor gets one.
namespace {

// GPU of one rank; the numbers count all ranks of this process.
GpuAssignment place_of(const MeshOptions& options, int rank, int gpus) {
  if (options.device.index < 0) return assigned_gpu(rank, options.num_ranks, gpus);
  return {.device = options.device.index, .ranks_on_it = options.num_ranks};
}

// Thread blocks for each collective of a rank, of which `side_by_side` may run at the same time.
int blocks_of(const core::CudaDeviceInfo& gpu, int ranks_on_it, int side_by_side) {
  if (const auto blocks = blocks_beside_compute(gpu.num_multiprocessors, ranks_on_it, side_by_side)) return *blocks;
  throw core::usage_error("--device cuda: " + std::to_string(ranks_on_it) + " ranks would share " + gpu.name +
                          ", with " + std::to_string(side_by_side) +
                          " concurrent collectives each; allowed: in total at most one for each of three quarters of " +
                          "its " + std::to_string(gpu.num_multiprocessors) + " multiprocessors");
}

// Streams that share a connection to the GPU serialize, and a kernel that waits for another rank's would wait forever
// if that kernel, or a copy that the other rank's thread waits for, were enqueued after it. The driver makes at most 32
// connections (core/device_cuda.cpp asks for them), for the streams of all ranks of this process. A rank has one stream
// for kernels, one for each of its collectives' channels, two for messages, and the device's own for copies. If that is
// too many, collectives use the stream of the kernels.
std::vector<int> queues_that_fit(const MeshOptions& options, std::size_t num_channels, int ranks_on_it) {
  constexpr int kConnections = 32;
  constexpr int kOtherStreams = 4;
  const int streams = collectives_side_by_side(options.queue_of_channel, num_channels) + kOtherStreams;
  return ranks_on_it * streams <= kConnections ? options.queue_of_channel : std::vector<int>{};
}

core::CudaDeviceInfo gpu_of(int device) {
  for (core::CudaDeviceInfo& gpu : core::cuda_devices()) {
    if (gpu.index == device) return std::move(gpu);
  }
  throw core::usage_error(
      "--device cuda:" + std::to_string(device) +
      ": there is no such GPU; allowed: cuda:0 to cuda:" + std::to_string(core::cuda_devices().size() - 1));
}

// The ranks of a local mesh belong to one process, so a device's number identifies it.
bool share_one_device(transports::World& all, int device) {
  const std::vector<int> devices = transports::all_gather_value(all, device);
  return std::all_of(devices.begin(), devices.end(), [device](int its) { return its == device; });
}

class CudaMeshDevice final : public MeshDevice {
 public:
  CudaMeshDevice(const MeshOptions& options, transports::World& all, const ChannelWorlds& worlds)
      : options_(options), all_(all), worlds_(worlds), ranks_(worlds.size()) {
    const GpuAssignment place = place_of(options, all.rank(), static_cast<int>(core::cuda_devices().size()));
    const core::CudaDeviceInfo gpu = gpu_of(place.device);
    device_ = core::make_cuda_device(place.device, all.rank(), options.timeout);
    const std::vector<int> queues = queues_that_fit(options, worlds.size(), place.ranks_on_it);
    streams_.emplace(*device_, core::make_urgent_stream, queues, memberships(worlds));
    const int side_by_side = collectives_side_by_side(queues, worlds.size());
    // Kernels time out first, as they can name the rank that they waited for.
    const executors::CudaOptions cuda{.timeout = options.timeout / 2,
                                      .most_blocks = blocks_of(gpu, place.ranks_on_it, side_by_side),
                                      .one_device = share_one_device(all, place.device)};
    // Every rank goes through the channels in the same order: members of each make theirs at the same time.
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
    return prepared_plan(ranks_[channel]->prepare(plan, operation), "cuda", std::move(plan));
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
