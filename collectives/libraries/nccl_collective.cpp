#include "collectives/libraries/nccl_collective.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <utility>
#include <vector>

#include "collectives/libraries/nccl_exchange.h"
#include "collectives/libraries/nccl_messages.h"
#include "core/cuda_call.h"
#include "core/deadline_call.h"
#include "core/error.h"

namespace lockstep::libraries {
namespace {

using collectives::Collective;
using collectives::Operation;

// Enqueues an operation once. There are two: NCCL's own call, and grouped sends and receives.
using Enqueue = std::function<void(const void* input, void* output)>;

class OwnCall {
 public:
  OwnCall(NcclCall call, const NcclMember& member, const Operation& operation, cudaStream_t stream)
      : call_(call),
        rank_(member.rank),
        arguments_{.input = nullptr,
                   .output = nullptr,
                   .count = static_cast<std::size_t>(operation.count),
                   .dtype = nccl_code(operation.dtype),
                   .op = nccl_code(operation.op),
                   .root = operation.root,
                   .communicator = member.communicator,
                   .stream = stream} {}
  void operator()(const void* input, void* output) const {
    NcclArguments arguments = arguments_;
    arguments.input = input;
    arguments.output = output;
    check_nccl(call_(arguments), "NCCL's collective", rank_, arguments.communicator);
  }

 private:
  NcclCall call_;
  int rank_;
  NcclArguments arguments_;
};

class GroupedMessages {
 public:
  GroupedMessages(const NcclMember& member, const Operation& operation, cudaStream_t stream)
      : exchange_(exchange_of(operation, member.num_ranks, member.rank)),
        place_{.rank = member.rank, .device = member.device},
        elem_bytes_(core::size_of(operation.dtype)),
        own_bytes_(bytes(operation.count)),
        communicator_(member.communicator),
        stream_(stream) {}

  void operator()(const void* input, void* output) const {
    // NCCL takes what it sends as const.
    auto* from = static_cast<std::byte*>(const_cast<void*>(input));
    auto* to = static_cast<std::byte*>(output);
    if (exchange_.own_block_at) {
      put_own_block(from, to + bytes(*exchange_.own_block_at));
      from = to;
    }
    for (const Round& round : exchange_.rounds) {
      check_nccl(nccl_exchange(communicator_, stream_, placed(round.sends, from), placed(round.receives, to)),
                 "an NCCL group of sends and receives", place_.rank, communicator_);
    }
  }

 private:
  std::size_t bytes(std::int64_t elems) const { return static_cast<std::size_t>(elems) * elem_bytes_; }

  void put_own_block(const std::byte* input, std::byte* own) const {
    if (input == own) return;
    core::check_cuda(cudaMemcpyAsync(own, input, own_bytes_, cudaMemcpyDeviceToDevice, stream_), "cudaMemcpyAsync",
                     place_);
  }

  std::vector<PeerBytes> placed(const std::vector<Message>& messages, std::byte* base) const {
    std::vector<PeerBytes> placed;
    for (const Message& m : messages) placed.push_back({m.peer, base + bytes(m.first), bytes(m.count)});
    return placed;
  }

  Exchange exchange_;
  core::CudaPlace place_;
  std::size_t elem_bytes_;
  std::size_t own_bytes_;
  ncclComm_t communicator_;
  cudaStream_t stream_;
};

class NcclCollective final : public Collective {
 public:
  NcclCollective(std::shared_ptr<NcclMember> member, Enqueue enqueue)
      : member_(std::move(member)), enqueue_(std::move(enqueue)) {}

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
    connect(member_, [enqueue = enqueue_, input, output] { enqueue(input, output); });
  }

  std::shared_ptr<NcclMember> member_;
  Enqueue enqueue_;
  bool connected_ = false;
};

}  // namespace

void connect(const std::shared_ptr<NcclMember>& member, const std::function<void()>& call) {
  const core::CudaPlace place{.rank = member->rank, .device = member->device};
  const bool returned = core::returns_in_time(
      [call, place] {
        core::check_cuda(cudaSetDevice(place.device), "cudaSetDevice", place);
        call();
      },
      member->timeout);
  if (returned) return;
  member->broken = true;
  throw core::Error(core::Failure::timeout,
                    fmt::format("rank {}: NCCL did not connect to the other ranks in {} s", member->rank,
                                std::chrono::duration<double>(member->timeout).count()));
}

std::unique_ptr<Collective> make_nccl_collective(std::shared_ptr<NcclMember> member, const Operation& operation,
                                                 core::Stream& stream) {
  auto* native = static_cast<cudaStream_t>(stream.native());
  Enqueue enqueue;
  if (const NcclCall call = nccl_call(operation.kind)) {
    enqueue = OwnCall(call, *member, operation, native);
  } else {
    enqueue = GroupedMessages(*member, operation, native);
  }
  return std::make_unique<NcclCollective>(std::move(member), std::move(enqueue));
}

}  // namespace lockstep::libraries
