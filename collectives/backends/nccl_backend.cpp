// The backend of NCCL: its own collectives and plans over NCCL, on ranks of their own and in meshes. Built with NCCL
// only.
#include "collectives/backends/backend_kinds.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backends/places.h"
#include "collectives/executors/executors.h"
#include "collectives/libraries/nccl_library.h"
#include "collectives/verify.h"
#include "core/device.h"
#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::backends {

// NCCL's messages and our kernels in one stream: runs plans over NCCL.
class NcclStream final : public executors::GroupStream {
 public:
  NcclStream(libraries::NcclGroup& group, core::Device& device, core::Stream& stream, int rank)
      : group_(group), stream_(stream), combiner_(device, stream, rank) {}

  void combine(const executors::Combination& combination) override { combiner_.combine(combination); }
  void exchange(std::span<const transports::PeerBytes> sends,
                std::span<const transports::PeerBytes> receives) override {
    group_.exchange(sends, receives, stream_);
  }

 private:
  libraries::NcclGroup& group_;
  core::Stream& stream_;
  executors::CudaCombiner combiner_;
};

namespace {

void check_shared_gpus(const BackendOptions& options) {
  const int gpus = static_cast<int>(core::cuda_devices().size());
  if (options.mpi != nullptr || options.num_ranks <= gpus) return;
  if (const auto why = libraries::why_no_shared_gpu()) {
    throw core::usage_error("--ranks " + std::to_string(options.num_ranks) + ": GPUs here: " + std::to_string(gpus) +
                            "; " + *why);
  }
}

// libraries::join_nccl() refuses shared GPUs if NCCL does not allow them.
class NcclMembership final : public GpuMember {
 public:
  NcclMembership(transports::World& world, RankGpu& gpu, const BackendOptions& options)
      : group_(libraries::join_nccl(world, *gpu.device,
                                    {.leads_process = host_placement(world).leads_process,
                                     .timeout = options.timeout,
                                     .registration = options.registration,
                                     .config = options.nccl_config})),
        messages_(*group_, *gpu.device, *gpu.stream, world.rank()),
        endpoint_{world,
                  *gpu.device,
                  *gpu.stream,
                  [this](const collectives::Operation& operation, plan::Plan plan) {
                    return prepare_plan(operation, std::move(plan));
                  },
                  [this](const collectives::Operation& operation, std::string_view asked) {
                    return prepare_library(operation, asked);
                  },
                  [this] { group_->wait(endpoint_.stream); }} {
    if (options.registration == libraries::NcclRegistration::none) return;
    endpoint_.buffers = {[this](std::size_t size_bytes) { return group_->allocate(size_bytes); },
                         [this](void* memory) { group_->release(memory); }};
  }

  Endpoint& endpoint() override { return endpoint_; }

 private:
  Prepared prepare_library(const collectives::Operation& operation, std::string_view asked) {
    const libraries::NcclChoice choice = libraries::parse_nccl_choice(asked);
    auto collective = group_->prepare(operation, choice, endpoint_.stream);
    return {std::move(collective), std::string(asked), "library", std::nullopt};
  }

  Prepared prepare_plan(const collectives::Operation& operation, plan::Plan plan) {
    return prepared_plan(
        executors::make_grouped_collective(plan, operation, endpoint_.world.rank(), endpoint_.device, messages_),
        "nccl", std::move(plan));
  }

  const std::unique_ptr<libraries::NcclGroup> group_;
  NcclStream messages_;
  Endpoint endpoint_;
};

}  // namespace

std::optional<std::string> nccl_absence() {
  return libraries::why_no_nccl();
}

std::unique_ptr<GpuMember> join_nccl(transports::World& world, RankGpu& gpu, const BackendOptions& options) {
  check_shared_gpus(options);
  return std::make_unique<NcclMembership>(world, gpu, options);
}

// Ranks on CUDA devices, threads of a local mesh or processes of mpirun, whose collectives are NCCL's: one communicator
// per channel, used in the channel's stream. The channel's own world, shared memory or MPI, brings its identifier to
// the members. NCCL's own algorithms are "auto" and "library"; plans run on its sends and receives.
//
// NCCL connects to other ranks at the first call, where the host blocks. Members may reach the first calls of two
// channels in different orders, so prepare() makes the first call, on memory of its own. No member's kernel may run
// while another member allocates that memory: an allocation may wait for the device, and for devices that it shares
// memory with (https://github.com/NVIDIA/nccl/issues/744).
namespace {

std::unique_ptr<core::Device> device_of(const MeshOptions& options, transports::World& all) {
  const int gpus = static_cast<int>(core::cuda_devices().size());
  const HostPlacement places = host_placement(all);
  const int chosen = options.device.index;
  const int index = chosen >= 0 ? chosen : assigned_gpu(places.rank_of_host, places.ranks_of_host, gpus).device;
  return core::make_cuda_device(index, all.rank(), options.timeout);
}

struct NcclChannel {
  std::unique_ptr<libraries::NcclGroup> group;
  std::unique_ptr<NcclStream> messages;
};

class NcclMeshDevice final : public MeshDevice {
 public:
  // Members of a channel join at the same time.
  NcclMeshDevice(const MeshOptions& options, transports::World& all, GroupWorlds worlds)
      : options_(options),
        all_(all),
        worlds_(std::move(worlds)),
        device_(device_of(options, all)),
        streams_(*device_, core::make_urgent_stream, options.queue_of_channel, memberships(worlds_)),
        channels_(worlds_.size()) {
    for_each_membership(worlds_, [this](std::size_t c, transports::World& world) {
      channels_[c].group =
          libraries::join_nccl(world, *device_,
                               {.leads_process = options_.mpi != nullptr || world.rank() == 0,
                                .timeout = options_.timeout,
                                .group = options_.channel_names.empty() ? std::string() : options_.channel_names[c]});
      channels_[c].messages =
          std::make_unique<NcclStream>(*channels_[c].group, *device_, streams_.of_channel(c), world.rank());
    });
  }

  core::Device& device() override { return *device_; }
  const MeshQueues* queues() override { return &streams_.queues(); }

  // Waits for the streams of channels first, in which only NCCL detects that a peer has failed; then for the stream of
  // kernels, in which a graph runs whole, with NCCL's work in it.
  void settle() override {
    libraries::NcclGroup* group = nullptr;
    for (std::size_t c = 0; c < channels_.size(); ++c) {
      if (!channels_[c].group) continue;
      group = channels_[c].group.get();
      group->wait(streams_.of_channel(c));
    }
    if (group != nullptr) group->wait(*streams_.queues().compute);
    streams_.synchronize();
  }

  Prepared prepare(std::size_t channel, const collectives::Operation& operation, std::string_view algorithm) override {
    Prepared prepared = make(channel, operation, algorithm);
    run_first(channel, operation, *prepared.collective);
    return prepared;
  }

  void leave() override {
    settle();
    all_.barrier();
  }

 private:
  Prepared make(std::size_t channel, const collectives::Operation& operation, std::string_view algorithm) {
    NcclChannel& to = channels_[channel];
    if (algorithm == "auto" || asks_library(algorithm)) {
      const std::string name(algorithm == "auto" ? kLibrary : algorithm);
      auto collective = to.group->prepare(operation, libraries::parse_nccl_choice(name), streams_.of_channel(channel));
      return {std::move(collective), name, "library", std::nullopt};
    }
    const transports::World& world = *worlds_[channel];
    plan::Plan plan = mesh_plan(options_, "nccl", operation, world.num_ranks(), algorithm);
    return prepared_plan(executors::make_grouped_collective(plan, operation, world.rank(), *device_, *to.messages),
                         "nccl", std::move(plan));
  }

  void run_first(std::size_t channel, const collectives::Operation& operation, collectives::Collective& collective) {
    const int ranks = worlds_[channel]->num_ranks();
    const int rank = worlds_[channel]->rank();
    core::Stream& stream = streams_.of_channel(channel);
    constexpr std::int64_t kAligned = 256;
    if (operation.in_place) {
      const auto layout = in_place_layout(operation, ranks, rank);
      const core::DeviceBlock memory(*device_, static_cast<std::size_t>(layout.buffer_bytes + kAligned));
      worlds_[channel]->barrier();
      collective.run(memory.data() + layout.input_at, memory.data() + layout.output_at);
      return channels_[channel].group->wait(stream);
    }
    const core::DeviceBlock input(*device_, static_cast<std::size_t>(input_bytes(operation, ranks, rank) + kAligned));
    const core::DeviceBlock output(*device_, static_cast<std::size_t>(output_bytes(operation, ranks, rank) + kAligned));
    worlds_[channel]->barrier();
    collective.run(input.data(), output.data());
    channels_[channel].group->wait(stream);
  }

  const MeshOptions& options_;
  transports::World& all_;
  const GroupWorlds worlds_;
  const std::unique_ptr<core::Device> device_;
  RankStreams streams_;
  std::vector<NcclChannel> channels_;  // [channel]; empty if the rank is not a member
};

}  // namespace

std::unique_ptr<MeshDevice> make_nccl_mesh_device(const MeshOptions& options, transports::World& all,
                                                  GroupWorlds worlds) {
  return std::make_unique<NcclMeshDevice>(options, all, std::move(worlds));
}

}  // namespace lockstep::backends
