#include "collectives/backends/backend_kinds.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backends/nccl_stream.h"
#include "collectives/backends/places.h"
#include "collectives/executors/grouped/grouped_executor.h"
#include "collectives/libraries/nccl_library.h"
#include "core/device_cuda.h"
#include "core/error.h"

namespace lockstep::backends {
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
    auto collective =
        executors::make_grouped_collective(plan, operation, endpoint_.world.rank(), endpoint_.device, messages_);
    std::string label = plan.algorithm;
    return {std::move(collective), std::move(label), "nccl", std::move(plan)};
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

}  // namespace lockstep::backends
