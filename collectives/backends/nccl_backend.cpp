#include "collectives/backends/nccl_backend.h"

#include <vector>

#include "collectives/backends/gpu_places.h"
#include "collectives/backends/gpu_ranks.h"
#include "collectives/backends/host_places.h"
#include "collectives/backends/plan_choice.h"
#include "collectives/executors/grouped/cuda_combiner.h"
#include "collectives/executors/grouped/grouped_executor.h"
#include "collectives/libraries/nccl_library.h"
#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::backends {
namespace {

// NCCL's messages and our kernels in one stream.
class NcclStream final : public executors::GroupStream {
 public:
  NcclStream(libraries::NcclGroup& group, core::Device& device, core::Stream& stream, int rank)
      : group_(group), stream_(stream), combiner_(device, stream, rank) {}

  void combine(const executors::Combination& combination) override { combiner_.combine(combination); }
  void exchange(std::span<const executors::PeerMessage> sends,
                std::span<const executors::PeerMessage> receives) override {
    put(sends, sends_);
    put(receives, receives_);
    group_.exchange(sends_, receives_, stream_);
  }

 private:
  static void put(std::span<const executors::PeerMessage> messages, std::vector<libraries::PeerBytes>& to) {
    to.clear();
    for (const auto& m : messages) to.push_back({m.peer, m.memory, static_cast<std::size_t>(m.bytes)});
  }

  libraries::NcclGroup& group_;
  core::Stream& stream_;
  executors::CudaCombiner combiner_;
  std::vector<libraries::PeerBytes> sends_;  // of one group
  std::vector<libraries::PeerBytes> receives_;
};

// join_nccl() refuses GPUs that are shared where NCCL does.
void run_rank(transports::World& world, std::chrono::nanoseconds timeout, const std::function<void(Endpoint&)>& body) {
  const HostPlaces places = host_places(world);
  const int gpus = static_cast<int>(core::cuda_devices().size());
  const GpuPlace place = gpu_place(places.rank_of_host, places.ranks_of_host, gpus);
  const auto device = core::make_cuda_device(place.device, world.rank(), timeout);
  const auto stream = device->make_stream();
  const bool leads_process = world.rank() == 0 || !places.one_process;
  const auto group = libraries::join_nccl(world, *device, leads_process, timeout);
  NcclStream messages(*group, *device, *stream, world.rank());
  const auto prepare = [&](const collectives::Operation& operation, std::string_view algorithm) -> Prepared {
    if (asks_library(algorithm)) {
      const libraries::NcclChoice choice = libraries::parse_nccl_choice(algorithm);
      return {group->prepare(operation, choice, *stream), std::string(algorithm), "library", std::nullopt};
    }
    plan::Plan plan = plan_for(operation, world.num_ranks(), algorithm);
    auto collective = executors::make_grouped_collective(plan, operation, world.rank(), *device, messages);
    std::string label = plan.algorithm;
    return {std::move(collective), std::move(label), "nccl", std::move(plan)};
  };
  Endpoint endpoint{world, *device, *stream, prepare, [&] { group->wait(*stream); }};
  body(endpoint);
}

}  // namespace

std::optional<std::string> nccl_absence() {
  return libraries::why_no_nccl();
}

void run_nccl(const BackendOptions& options, const std::function<void(Endpoint&)>& body) {
  const int gpus = static_cast<int>(core::cuda_devices().size());
  const auto why = libraries::why_no_shared_gpu();
  if (options.mpi == nullptr && options.num_ranks > gpus && why) {
    throw core::usage_error("--ranks " + std::to_string(options.num_ranks) + ": GPUs here: " + std::to_string(gpus) +
                            "; " + *why);
  }
  run_gpu_ranks(options, [&](transports::World& world) { run_rank(world, options.timeout, body); });
}

}  // namespace lockstep::backends
