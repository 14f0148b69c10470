#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <array>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/libraries/nccl_collective.h"
#include "collectives/libraries/nccl_library.h"
#include "core/cuda_call.h"
#include "core/deadline_call.h"
#include "core/device_cuda.h"
#include "core/error.h"
#include "core/wait.h"

namespace lockstep::libraries {
namespace {

using core::Error;
using core::Failure;

double seconds(std::chrono::nanoseconds span) {
  return std::chrono::duration<double>(span).count();
}

class NcclGroupImpl final : public NcclGroup {
 public:
  NcclGroupImpl(std::shared_ptr<NcclMember> member, int compute_capability)
      : member_(std::move(member)), compute_capability_(compute_capability) {}
  NcclGroupImpl(const NcclGroupImpl&) = delete;
  NcclGroupImpl& operator=(const NcclGroupImpl&) = delete;
  ~NcclGroupImpl() override {
    if (member_->broken) return;
    core::returns_in_time([member = member_] { ncclCommDestroy(member->communicator); }, member_->timeout);
  }

  std::unique_ptr<collectives::Collective> prepare(const collectives::Operation& operation,
                                                   core::Stream& stream) override {
    if (const auto why = nccl_refusal(operation, member_->num_ranks, compute_capability_)) {
      throw core::usage_error(*why);
    }
    return make_nccl_collective(member_, operation, stream);
  }

  void wait(core::Stream& stream) override {
    const core::Deadline deadline = core::Deadline::after(member_->timeout);
    while (!stream.done()) {
      ncclResult_t result = ncclSuccess;
      check_nccl(ncclCommGetAsyncError(member_->communicator, &result), "ncclCommGetAsyncError", member_->rank,
                 member_->communicator);
      if (result != ncclSuccess && result != ncclInProgress) fail(result);
      if (deadline.passed()) {
        abort();
        throw Error(Failure::timeout, fmt::format("rank {}: NCCL's work is not done after {} s", member_->rank,
                                                  seconds(member_->timeout)));
      }
      std::this_thread::yield();
    }
  }

 private:
  [[noreturn]] void fail(ncclResult_t result) {
    try {
      check_nccl(result, "NCCL's work", member_->rank, member_->communicator);
    } catch (const Error&) {
      abort();  // after the text was taken from the communicator
      throw;
    }
    throw Error(Failure::internal, "NCCL failed with success");
  }

  // Ends NCCL's kernels, so that the device's memory can be freed.
  void abort() {
    member_->broken = true;
    core::returns_in_time([member = member_] { ncclCommAbort(member->communicator); }, member_->timeout);
  }

  std::shared_ptr<NcclMember> member_;
  int compute_capability_;
};

// What each rank tells the others before they join.
struct Introduction {
  ncclUniqueId id;  // rank 0's counts
  int id_result;
  GpuUuid gpu;
};

ncclUniqueId agree(transports::World& world, const GpuUuid& gpu) {
  Introduction mine{.id = {}, .id_result = ncclSuccess, .gpu = gpu};
  if (world.rank() == 0) mine.id_result = ncclGetUniqueId(&mine.id);
  const std::vector<Introduction> all = transports::all_gather_value(world, mine);
  check_nccl(all.front().id_result, "ncclGetUniqueId", 0, nullptr);
  std::vector<GpuUuid> gpus;
  for (const Introduction& introduction : all) gpus.push_back(introduction.gpu);
  if (const auto why = shared_gpu_refusal(gpus)) throw core::usage_error(*why);
  return all.front().id;
}

void join(const std::shared_ptr<NcclMember>& member, const ncclUniqueId& id) {
  const bool joined = core::returns_in_time(
      [member, id] {
        core::check_cuda(cudaSetDevice(member->device), "cudaSetDevice",
                         {.rank = member->rank, .device = member->device});
        check_nccl(ncclCommInitRank(&member->communicator, member->num_ranks, id, member->rank), "ncclCommInitRank",
                   member->rank, nullptr);
      },
      member->timeout);
  if (!joined) {
    throw Error(Failure::timeout, fmt::format("rank {}: joining NCCL's group of {} ranks took more than {} s",
                                              member->rank, member->num_ranks, seconds(member->timeout)));
  }
}

}  // namespace

std::optional<std::string> why_no_nccl() {
  if (const auto why = core::why_no_cuda()) return "NCCL needs a GPU: " + *why;
  return std::nullopt;
}

std::string nccl_library_version() {
  return nccl_version();
}

std::unique_ptr<NcclGroup> join_nccl(transports::World& world, const core::Device& device,
                                     std::chrono::nanoseconds timeout) {
  if (device.is_host_memory()) throw core::usage_error("NCCL needs a CUDA device, not " + device.name());
  const auto info = core::cuda_devices().at(static_cast<std::size_t>(device.index()));
  const ncclUniqueId id = agree(world, info.uuid);
  auto member = std::make_shared<NcclMember>(NcclMember{.communicator = nullptr,
                                                        .rank = world.rank(),
                                                        .num_ranks = world.num_ranks(),
                                                        .device = device.index(),
                                                        .timeout = timeout,
                                                        .broken = false});
  join(member, id);
  return std::make_unique<NcclGroupImpl>(std::move(member), info.compute_capability);
}

}  // namespace lockstep::libraries
