#include "collectives/libraries/nccl_collective.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <functional>
#include <utility>

#include "collectives/libraries/nccl_exchange.h"
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
        count_(static_cast<std::size_t>(operation.count)),
        dtype_(static_cast<ncclDataType_t>(nccl_code(operation.dtype))),
        communicator_(member.communicator),
        stream_(stream) {}

  void operator()(const void* input, void* output) const {
    const auto* from = static_cast<const std::byte*>(input);
    auto* to = static_cast<std::byte*>(output);
    if (exchange_.own_block_at) {
      put_own_block(from, to + bytes(*exchange_.own_block_at));
      from = to;
    }
    for (const Round& round : exchange_.rounds) {
      check_nccl(start(round, from, to), "an NCCL group of sends and receives", place_.rank, communicator_);
    }
  }

 private:
  std::size_t bytes(std::int64_t elems) const { return static_cast<std::size_t>(elems) * elem_bytes_; }

  void put_own_block(const std::byte* input, std::byte* own) const {
    if (input == own) return;
    core::check_cuda(cudaMemcpyAsync(own, input, count_ * elem_bytes_, cudaMemcpyDeviceToDevice, stream_),
                     "cudaMemcpyAsync", place_);
  }

  // The first failure, if any: a group that was opened is closed in any case.
  ncclResult_t start(const Round& round, const std::byte* from, std::byte* to) const {
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess) return result;
    for (const Message& m : round.sends) {
      if (result != ncclSuccess) break;
      result =
          ncclSend(from + bytes(m.first), static_cast<std::size_t>(m.count), dtype_, m.peer, communicator_, stream_);
    }
    for (const Message& m : round.receives) {
      if (result != ncclSuccess) break;
      result = ncclRecv(to + bytes(m.first), static_cast<std::size_t>(m.count), dtype_, m.peer, communicator_, stream_);
    }
    const ncclResult_t end = ncclGroupEnd();
    return result != ncclSuccess ? result : end;
  }

  Exchange exchange_;
  core::CudaPlace place_;
  std::size_t elem_bytes_;
  std::size_t count_;
  ncclDataType_t dtype_;
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
  // NCCL connects at the first use of an algorithm, and waits there for the other ranks without a deadline.
  void first_run(const void* input, void* output) {
    const core::CudaPlace place{.rank = member_->rank, .device = member_->device};
    const bool returned = core::returns_in_time(
        [enqueue = enqueue_, place, input, output] {
          core::check_cuda(cudaSetDevice(place.device), "cudaSetDevice", place);
          enqueue(input, output);
        },
        member_->timeout);
    if (returned) return;
    member_->broken = true;
    throw core::Error(core::Failure::timeout,
                      fmt::format("rank {}: NCCL did not connect to the other ranks in {} s", member_->rank,
                                  std::chrono::duration<double>(member_->timeout).count()));
  }

  std::shared_ptr<NcclMember> member_;
  Enqueue enqueue_;
  bool connected_ = false;
};

}  // namespace

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
