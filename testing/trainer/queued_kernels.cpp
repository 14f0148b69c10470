// The functions that a build with CUDA has for the trainer, on a queued device (queued_device.h): linked in
// place of the sources that say that there is no CUDA. Kernels are those of the CPU, collectives those of ranks that
// are threads; both run when their stream comes to them. Of strided operands what lies between rows counts as used.
#include <memory>
#include <typeindex>
#include <utility>
#include <vector>

#include "collectives/backends/backend_kinds.h"
#include "kernels/activation/activation.h"
#include "kernels/attention/attention.h"
#include "kernels/attention_merge/attention_merge.h"
#include "kernels/base/cuda_context.h"
#include "kernels/bucket/bucket.h"
#include "kernels/cast/cast.h"
#include "kernels/copy/copy.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/embedding/embedding.h"
#include "kernels/fp8/fp8.h"
#include "kernels/fp8/gemm_fp8.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/moe/permute.h"
#include "kernels/moe/router.h"
#include "kernels/norm/norm.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/quantize/quantize.h"
#include "kernels/reduce/reduction.h"
#include "kernels/residual/residual.h"
#include "kernels/rotary/rotary.h"
#include "kernels/softmax/softmax.h"
#include "testing/trainer/queued_device.h"

namespace lockstep::kernels {
namespace {

template <class Args>
void queue(const Args& args, CudaContext& cuda) {
  std::vector<trainer::MemoryUse> uses;
  for (const Operand& operand : operands_of(args)) {
    if (operand.elems > 0)
      uses.push_back({operand.data, size_bytes(operand.dtype, operand.elems), operand.access != Access::read});
  }
  dynamic_cast<trainer::QueuedStream&>(cuda.queue()).queue(std::string(args.name()), uses, [args](ThreadPool& pool) {
    run_cpu(args, pool);
  });
}

}  // namespace

struct CudaContext::State {
  core::Device& device;
  core::Stream& stream;
};

CudaContext::CudaContext(core::Device& device, core::Stream& stream, int /*rank*/)
    : state_(std::make_unique<State>(State{device, stream})) {}
CudaContext::~CudaContext() = default;
core::Stream& CudaContext::queue() const {
  return state_->stream;
}

void run_cuda(const GeluForward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const GeluBackward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const SwigluForward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const SwigluBackward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const Rotary& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const CrossEntropy& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const CrossEntropyStats& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const CrossEntropyFinish& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const EmbeddingForward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const EmbeddingBackward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const AttentionForward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const AttentionBackward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const AttentionMerge& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const CopyRows& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const GemmForward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const GemmInputGradient& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const GemmWeightGradient& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const GemmBatched& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const RouterForward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const RouterBackward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const AssignSlots& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const Permute& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const Unpermute& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const UnpermuteBackward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const GroupedGemmForward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const GroupedGemmInputGradient& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const GroupedGemmWeightGradient& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const OptimizerStep& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const SumOfSquares& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const ClipFactor& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const FiniteCheck& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const Cast& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const Quantize& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const Dequantize& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const Fp8Encode& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const Fp8Decode& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const GemmFp8& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const GemmFp8Add& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const PackBucket& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const UnpackBucket& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const Reduction& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const ResidualAdd& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const SoftmaxForward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const SoftmaxBackward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const NormForward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const NormBackward& args, CudaContext& cuda) {
  queue(args, cuda);
}
void run_cuda(const Dropout& args, CudaContext& cuda) {
  queue(args, cuda);
}

}  // namespace lockstep::kernels

namespace lockstep::backends {
namespace {

class QueuedCollective final : public collectives::Collective {
 public:
  QueuedCollective(std::unique_ptr<collectives::Collective> collective, const collectives::Operation& operation,
                   const transports::World& world, trainer::QueuedStream& stream)
      : collective_(std::move(collective)),
        elem_bytes_(core::size_of(operation.dtype)),
        in_elems_(collectives::input_offsets(operation, world.num_ranks(), world.rank()).back()),
        out_elems_(collectives::output_offsets(operation, world.num_ranks(), world.rank()).back()),
        stream_(stream) {}

  void run(const void* input, void* output) override {
    stream_.queue("collective",
                  {{input, elem_bytes_ * static_cast<std::size_t>(in_elems_), false},
                   {output, elem_bytes_ * static_cast<std::size_t>(out_elems_), true}},
                  [this, input, output](kernels::ThreadPool&) { collective_->run(input, output); });
  }

 private:
  const std::unique_ptr<collectives::Collective> collective_;
  const std::size_t elem_bytes_;
  const std::int64_t in_elems_;
  const std::int64_t out_elems_;
  trainer::QueuedStream& stream_;
};

class QueuedMeshDevice final : public MeshDevice {
 public:
  QueuedMeshDevice(const MeshOptions& options, transports::World& all, const ChannelWorlds& worlds)
      : options_(options), all_(all), worlds_(worlds), device_(options.wrap_device(nullptr)) {
    streams_ = std::make_unique<RankStreams>(
        *device_, [](core::Device& device) { return device.make_stream(); }, options.queue_of_channel,
        memberships(worlds));
  }

  core::Device& device() override { return *device_; }
  const MeshQueues* queues() override { return &streams_->queues(); }
  void settle() override { streams_->synchronize(); }
  Prepared prepare(std::size_t channel, const collectives::Operation& operation, std::string_view algorithm) override {
    auto& stream = dynamic_cast<trainer::QueuedStream&>(streams_->of_channel(channel));
    stream.finish();  // the channel's world is used by one thread at a time
    transports::LocalWorld& world = *worlds_[channel];
    Prepared prepared = prepare_direct(options_, world, operation, algorithm);
    prepared.collective = std::make_unique<QueuedCollective>(std::move(prepared.collective), operation, world, stream);
    return prepared;
  }
  void leave() override {
    settle();
    all_.barrier();
  }

 private:
  const MeshOptions& options_;
  transports::World& all_;
  const ChannelWorlds& worlds_;
  const std::unique_ptr<core::Device> device_;
  std::unique_ptr<RankStreams> streams_;
};

}  // namespace

std::unique_ptr<MeshDevice> make_cuda_mesh_device(const MeshOptions& options, transports::World& all,
                                                  const ChannelWorlds& worlds) {
  return std::make_unique<QueuedMeshDevice>(options, all, worlds);
}

}  // namespace lockstep::backends
