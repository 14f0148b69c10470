#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string_view>
#include <thread>
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

// What each rank tells the others before they join.
struct Introduction {
  ncclUniqueId id;  // rank 0's counts
  int id_result;
  GpuUuid gpu;
};

NcclSharing sharing() {
  NcclSharing sharing{.version_code = 0, .enabled = false};
  (void)ncclGetVersion(&sharing.version_code);
  const char* enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  sharing.enabled = enabled != nullptr && std::string_view(enabled) == "1";
  return sharing;
}

ncclUniqueId agree(transports::World& world, const GpuUuid& gpu) {
  Introduction mine{.id = {}, .id_result = ncclSuccess, .gpu = gpu};
  if (world.rank() == 0) mine.id_result = ncclGetUniqueId(&mine.id);
  const std::vector<Introduction> all = transports::all_gather_value(world, mine);
  check_nccl(all.front().id_result, "ncclGetUniqueId", 0, nullptr);
  std::vector<GpuUuid> gpus;
  for (const Introduction& introduction : all) gpus.push_back(introduction.gpu);
  if (const auto why = shared_gpu_refusal(gpus, sharing())) throw core::usage_error(*why);
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
  if (joined) return;
  member->broken = true;
  throw Error(Failure::timeout, fmt::format("rank {}: joining NCCL's group of {} ranks took more than {} s",
                                            member->rank, member->num_ranks, seconds(member->timeout)));
}

// Sets a variable of the environment while it lives; an empty value leaves it as it is. Other threads of the process
// must not ask for variables when it comes and goes.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name), sets_(!value.empty()) {
    if (!sets_) return;
    if (const char* before = std::getenv(name)) before_ = before;  // NOLINT(concurrency-mt-unsafe): as said above
    setenv(name, value.c_str(), 1);                                // NOLINT(concurrency-mt-unsafe)
  }
  ~ScopedVariable() {
    if (!sets_) return;
    if (before_) {
      setenv(name_, before_->c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    } else {
      unsetenv(name_);  // NOLINT(concurrency-mt-unsafe)
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  bool sets_;
  std::optional<std::string> before_;
};

struct Place {
  transports::World& world;
  int device;
  GpuUuid gpu;
  int compute_capability;
  bool leads_process;
  std::chrono::nanoseconds timeout;
};

// All ranks at the same time. The barriers keep the threads of a process from asking for variables, and from going on,
// while one of them sets them for all.
std::shared_ptr<NcclMember> make_member(const Place& place, const NcclChoice& choice) {
  const ncclUniqueId id = agree(place.world, place.gpu);
  auto member = std::make_shared<NcclMember>(NcclMember{.communicator = nullptr,
                                                        .rank = place.world.rank(),
                                                        .num_ranks = place.world.num_ranks(),
                                                        .device = place.device,
                                                        .timeout = place.timeout,
                                                        .broken = false});
  const NcclChoice mine = place.leads_process ? choice : NcclChoice{};
  const ScopedVariable algo("NCCL_ALGO", mine.algo);
  const ScopedVariable proto("NCCL_PROTO", mine.proto);
  place.world.barrier();
  join(member, id);
  place.world.barrier();
  return member;
}

class NcclGroupImpl final : public NcclGroup {
 public:
  explicit NcclGroupImpl(const Place& place) : place_(place) { member(NcclChoice{}); }
  NcclGroupImpl(const NcclGroupImpl&) = delete;
  NcclGroupImpl& operator=(const NcclGroupImpl&) = delete;
  ~NcclGroupImpl() override {
    for (const auto& [choice, member] : members_) {
      if (member->broken) continue;
      core::returns_in_time([member = member] { ncclCommDestroy(member->communicator); }, member->timeout);
    }
  }

  std::unique_ptr<collectives::Collective> prepare(const collectives::Operation& operation, const NcclChoice& choice,
                                                   core::Stream& stream) override {
    if (const auto why = nccl_refusal(operation, place_.world.num_ranks(), place_.compute_capability)) {
      throw core::usage_error(*why);
    }
    if (const auto why = choice_refusal(choice, operation.kind)) throw core::usage_error(*why);
    return make_nccl_collective(member(choice), operation, stream);
  }

  void exchange(std::span<const PeerBytes> sends, std::span<const PeerBytes> receives, core::Stream& stream) override {
    const std::shared_ptr<NcclMember>& member = members_.at(NcclChoice{});
    LOCKSTEP_CHECK(!member->broken, "NCCL's group has failed before");
    const auto call = [member](CUstream_st* on, std::span<const PeerBytes> out, std::span<const PeerBytes> in) {
      check_nccl(nccl_exchange(member->communicator, on, out, in), "an NCCL group of sends and receives", member->rank,
                 member->communicator);
    };
    auto* native = static_cast<CUstream_st*>(stream.native());
    if (all_known(sends, sent_to_) && all_known(receives, received_from_)) return call(native, sends, receives);
    const std::vector<PeerBytes> out(sends.begin(), sends.end());
    const std::vector<PeerBytes> in(receives.begin(), receives.end());
    connect(member, [call, native, out, in] { call(native, out, in); });
    for (const PeerBytes& message : out) sent_to_.insert(message.peer);
    for (const PeerBytes& message : in) received_from_.insert(message.peer);
  }

  void wait(core::Stream& stream) override {
    const core::Deadline deadline = core::Deadline::after(place_.timeout);
    while (!stream.done()) {
      for (const auto& [choice, member] : members_) check(*member);
      if (deadline.passed()) {
        abort();
        throw Error(Failure::timeout, fmt::format("rank {}: NCCL's work is not done after {} s", place_.world.rank(),
                                                  seconds(place_.timeout)));
      }
      std::this_thread::yield();
    }
  }

 private:
  static bool all_known(std::span<const PeerBytes> messages, const std::set<int>& peers) {
    return std::all_of(messages.begin(), messages.end(),
                       [&](const PeerBytes& message) { return peers.contains(message.peer); });
  }

  std::shared_ptr<NcclMember> member(const NcclChoice& choice) {
    const auto known = members_.find(choice);
    if (known != members_.end()) return known->second;
    return members_.emplace(choice, make_member(place_, choice)).first->second;
  }

  void check(const NcclMember& member) {
    ncclResult_t result = ncclSuccess;
    check_nccl(ncclCommGetAsyncError(member.communicator, &result), "ncclCommGetAsyncError", member.rank,
               member.communicator);
    if (result == ncclSuccess || result == ncclInProgress) return;
    try {
      check_nccl(result, "NCCL's work", member.rank, member.communicator);
    } catch (const Error&) {
      abort();  // after the text was taken from the communicator
      throw;
    }
  }

  // Ends NCCL's kernels, so that the device's memory can be freed.
  void abort() {
    for (const auto& [choice, member] : members_) {
      member->broken = true;
      core::returns_in_time([member = member] { ncclCommAbort(member->communicator); }, member->timeout);
    }
  }

  Place place_;
  std::map<NcclChoice, std::shared_ptr<NcclMember>> members_;  // the first: messages, and what NCCL chooses itself
  std::set<int> sent_to_;                                      // peers that messages have gone to before
  std::set<int> received_from_;
};

}  // namespace

std::optional<std::string> why_no_nccl() {
  if (const auto why = core::why_no_cuda()) return "NCCL needs a GPU: " + *why;
  return std::nullopt;
}

std::string nccl_library_version() {
  return nccl_version();
}

std::optional<std::string> why_no_shared_gpu() {
  return sharing_refusal(sharing());
}

std::unique_ptr<NcclGroup> join_nccl(transports::World& world, const core::Device& device, bool leads_process,
                                     std::chrono::nanoseconds timeout) {
  if (device.is_host_memory()) throw core::usage_error("NCCL needs a CUDA device, not " + device.name());
  const auto info = core::cuda_devices().at(static_cast<std::size_t>(device.index()));
  return std::make_unique<NcclGroupImpl>(Place{.world = world,
                                               .device = device.index(),
                                               .gpu = info.uuid,
                                               .compute_capability = info.compute_capability,
                                               .leads_process = leads_process,
                                               .timeout = timeout});
}

}  // namespace lockstep::libraries
