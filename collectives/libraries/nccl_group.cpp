#include "collectives/libraries/nccl_api.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "collectives/libraries/nccl_library.h"
#include "collectives/libraries/nccl_member.h"
#include "collectives/libraries/nccl_rules.h"
#include "core/cuda_call.h"
#include "core/device_cuda.h"
#include "core/error.h"
#include "core/wait.h"

namespace lockstep::libraries {
namespace {

using collectives::Collective;
using collectives::Operation;

// Enqueues an operation once. Two kinds exist: NCCL's own call, and grouped sends and receives.
using Enqueue = std::function<void(const void* input, void* output)>;

std::string call_name(const Operation& operation) {
  return "NCCL's " + std::string(collectives::name_of(operation.kind));
}

class OwnCall {
 public:
  OwnCall(NcclCall call, NcclMemberPtr member, const Operation& operation, cudaStream_t stream)
      : call_(call),
        member_(std::move(member)),
        name_(call_name(operation)),
        arguments_{.input = nullptr,
                   .output = nullptr,
                   .count = static_cast<std::size_t>(operation.count),
                   .dtype = nccl_code(operation.dtype),
                   .op = nccl_code(operation.op),
                   .root = operation.root,
                   .communicator = member_->communicator,
                   .stream = stream} {}
  void operator()(const void* input, void* output) const {
    NcclArguments arguments = arguments_;
    arguments.input = input;
    arguments.output = output;
    settle(*member_, name_, call_(arguments));
  }

 private:
  NcclCall call_;
  NcclMemberPtr member_;
  std::string name_;
  NcclArguments arguments_;
};

class GroupedMessages {
 public:
  GroupedMessages(NcclMemberPtr member, const Operation& operation, cudaStream_t stream)
      : member_(std::move(member)),
        name_(call_name(operation)),
        exchange_(exchange_of(operation, member_->num_ranks, member_->rank)),
        elem_bytes_(core::size_of(operation.dtype)),
        own_bytes_(bytes(operation.count)),
        stream_(stream) {}

  void operator()(const void* input, void* output) const {
    // NCCL takes the buffers that it sends as const.
    auto* from = static_cast<std::byte*>(const_cast<void*>(input));
    auto* to = static_cast<std::byte*>(output);
    if (exchange_.own_block_at) {
      put_own_block(from, to + bytes(*exchange_.own_block_at));
      from = to;
    }
    for (const Round& round : exchange_.rounds) {
      settle(*member_, name_,
             nccl_exchange(member_->communicator, stream_, placed(round.sends, from), placed(round.receives, to)));
    }
  }

 private:
  std::size_t bytes(std::int64_t elems) const { return static_cast<std::size_t>(elems) * elem_bytes_; }

  void put_own_block(const std::byte* input, std::byte* own) const {
    if (input == own) return;
    core::check_cuda(cudaMemcpyAsync(own, input, own_bytes_, cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync",
                     {.rank = member_->caller.rank, .device = member_->caller.device});
  }

  std::vector<PeerBytes> placed(const std::vector<Message>& messages, std::byte* base) const {
    std::vector<PeerBytes> placed;
    for (const Message& m : messages) placed.push_back({m.peer, base + bytes(m.first), bytes(m.count)});
    return placed;
  }

  NcclMemberPtr member_;
  std::string name_;
  Exchange exchange_;
  std::size_t elem_bytes_;
  std::size_t own_bytes_;
  cudaStream_t stream_;
};

class NcclCollective final : public Collective {
 public:
  NcclCollective(NcclMemberPtr member, std::string name, Enqueue enqueue)
      : member_(std::move(member)), name_(std::move(name)), enqueue_(std::move(enqueue)) {}

  void run(const void* input, void* output) override {
    LOCKSTEP_CHECK(!member_->broken, "NCCL's group has failed before");
    if (connected_) {
      enqueue_(input, output);
    } else {
      first_run(input, output);
      connected_ = true;
    }
  }

 private:
  // NCCL connects at the first use of an algorithm.
  void first_run(const void* input, void* output) {
    call_in_time(member_, "the first " + name_, [enqueue = enqueue_, input, output] { enqueue(input, output); });
  }

  NcclMemberPtr member_;
  const std::string name_;
  Enqueue enqueue_;
  bool connected_ = false;
};

}  // namespace

std::unique_ptr<Collective> make_nccl_collective(NcclMemberPtr member, const Operation& operation,
                                                 core::Stream& stream) {
  auto* native = static_cast<cudaStream_t>(stream.native());
  Enqueue enqueue;
  if (const NcclCall call = nccl_call(operation.kind)) {
    enqueue = OwnCall(call, member, operation, native);
  } else {
    enqueue = GroupedMessages(member, operation, native);
  }
  return std::make_unique<NcclCollective>(std::move(member), call_name(operation), std::move(enqueue));
}

namespace {

struct JoiningRank {
  transports::World& world;
  NcclCaller nccl;
  NcclGpu gpu;
  int compute_capability;
  bool leads_process;
};

NcclSharing sharing() {
  NcclSharing sharing{.version_code = nccl_version_code(), .enabled = false};
  const char* enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  sharing.enabled = enabled != nullptr && std::string_view(enabled) == "1";
  return sharing;
}

// Sets an environment variable during its lifetime; an empty value leaves the variable as it is. Other threads of the
// process must not read the environment while it is created or destroyed.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name), sets_(!value.empty()) {
    if (!sets_) return;
    if (const char* before = std::getenv(name)) before_ = before;  // NOLINT(concurrency-mt-unsafe): as above
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

class NcclGroupImpl final : public NcclGroup {
 public:
  explicit NcclGroupImpl(const JoiningRank& joining)
      : rank_(joining),
        parent_(join_world(nccl_api(), rank_.nccl, joining.world, joining.gpu)),
        buffers_(nccl_api(), joining.nccl) {
    all_.add(parent_);
    member(NcclChoice{});
  }

  std::unique_ptr<collectives::Collective> prepare(const collectives::Operation& operation, const NcclChoice& choice,
                                                   core::Stream& stream) override {
    const NcclPlatform platform{rank_.compute_capability, nccl_version_code()};
    if (const auto why = nccl_refusal(operation, rank_.world.num_ranks(), platform)) {
      throw core::usage_error(*why);
    }
    if (const auto why = choice_refusal(choice, operation.kind)) throw core::usage_error(*why);
    return make_nccl_collective(member(choice), operation, stream);
  }

  void exchange(std::span<const PeerBytes> sends, std::span<const PeerBytes> receives, core::Stream& stream) override {
    const NcclMemberPtr& member = members_.at(NcclChoice{});
    LOCKSTEP_CHECK(!member->broken, "NCCL's group has failed before");
    constexpr const char* kCall = "an NCCL group of sends and receives";
    const auto call = [member](CUstream_st* on, std::span<const PeerBytes> out, std::span<const PeerBytes> in) {
      settle(*member, kCall, nccl_exchange(member->communicator, on, out, in));
    };
    auto* native = static_cast<CUstream_st*>(stream.native());
    if (all_known(sends, sent_to_) && all_known(receives, received_from_)) return call(native, sends, receives);
    const std::vector<PeerBytes> out(sends.begin(), sends.end());
    const std::vector<PeerBytes> in(receives.begin(), receives.end());
    call_in_time(member, kCall, [call, native, out, in] { call(native, out, in); });
    for (const PeerBytes& message : out) sent_to_.insert(message.peer);
    for (const PeerBytes& message : in) received_from_.insert(message.peer);
  }

  void wait(core::Stream& stream) override {
    const core::Deadline deadline = core::Deadline::after(rank_.nccl.timeout);
    const core::Backoff backoff;
    while (!stream.done()) {
      all_.check(deadline);
      backoff.pause();
    }
  }

  void* allocate(std::size_t size_bytes) override { return buffers_.allocate(size_bytes); }
  void release(void* memory) override { buffers_.release(memory); }

 private:
  static bool all_known(std::span<const PeerBytes> messages, const std::set<int>& peers) {
    return std::all_of(messages.begin(), messages.end(),
                       [&](const PeerBytes& message) { return peers.contains(message.peer); });
  }

  const NcclMemberPtr& member(const NcclChoice& choice) {
    const auto known = members_.find(choice);
    if (known != members_.end()) return known->second;
    const NcclMemberPtr member = make_member(choice);
    all_.add(member);
    buffers_.add(member);
    return members_.emplace(choice, member).first->second;
  }

  // Collective: all ranks call it at the same time. The barriers keep threads of a process from reading the
  // environment, and from going on, while one thread sets variables for all.
  NcclMemberPtr make_member(const NcclChoice& choice) {
    const NcclChoice mine = rank_.leads_process ? choice : NcclChoice{};
    const ScopedVariable algo("NCCL_ALGO", mine.algo);
    const ScopedVariable proto("NCCL_PROTO", mine.proto);
    rank_.world.barrier();
    NcclMemberPtr member = split_members(parent_, 0, rank_.world.num_ranks(), rank_.world.rank());
    rank_.world.barrier();
    return member;
  }

  JoiningRank rank_;
  NcclMembers all_;
  NcclMemberPtr parent_;
  NcclBuffers buffers_;
  std::map<NcclChoice, NcclMemberPtr> members_;  // the first: for messages, and for NCCL's own choice
  std::set<int> sent_to_;                        // peers that have been sent to before
  std::set<int> received_from_;
};

}  // namespace

std::optional<std::string> why_no_nccl() {
  if (const auto why = core::why_no_cuda()) return "NCCL needs a GPU: " + *why;
  try {
    nccl_opened();
  } catch (const core::Error& error) {
    return error.what();
  }
  return std::nullopt;
}

std::optional<std::string> why_no_shared_gpu() {
  return sharing_refusal(sharing());
}

std::unique_ptr<NcclGroup> join_nccl(transports::World& world, const core::Device& device,
                                     const NcclGroupOptions& options) {
  if (device.is_host_memory()) throw core::usage_error("NCCL needs a CUDA device, not " + device.name());
  const auto info = core::cuda_devices().at(static_cast<std::size_t>(device.index()));
  const core::CudaCaller caller{.rank = world.number_of(world.rank()), .device = device.index()};
  return std::make_unique<NcclGroupImpl>(JoiningRank{
      .world = world,
      .nccl = {.rank = caller.rank,
               .device = caller.device,
               .timeout = options.timeout,
               .config = options.config,
               .registration = options.registration,
               .group = options.group,
               .set_device = [caller] { core::check_cuda(cudaSetDevice(caller.device), "cudaSetDevice", caller); },
               .check_peers = [&world] { world.check(); }},
      .gpu = {info.uuid, info.num_multiprocessors, sharing()},
      .compute_capability = info.compute_capability,
      .leads_process = options.leads_process});
}

}  // namespace lockstep::libraries
