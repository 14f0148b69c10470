#include "collectives/libraries/nccl_collective.h"

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/libraries/nccl_calls.h"
#include "collectives/libraries/nccl_exchange.h"
#include "collectives/libraries/nccl_messages.h"
#include "core/cuda_call.h"
#include "core/error.h"

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
                     {.rank = member_->place.rank, .device = member_->place.device});
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

}  // namespace lockstep::libraries
