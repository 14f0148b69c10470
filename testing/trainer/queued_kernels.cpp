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

#define LOCKSTEP_QUEUED(Kernel)                          \
  void run_cuda(const Kernel& args, CudaContext& cuda) { \
    queue(args, cuda);                                   \
  }
LOCKSTEP_QUEUED(GeluForward)
LOCKSTEP_QUEUED(GeluBackward)
LOCKSTEP_QUEUED(SwigluForward)
LOCKSTEP_QUEUED(SwigluBackward)
LOCKSTEP_QUEUED(Rotary)
LOCKSTEP_QUEUED(CrossEntropy)
LOCKSTEP_QUEUED(CrossEntropyStats)
LOCKSTEP_QUEUED(CrossEntropyFinish)
LOCKSTEP_QUEUED(EmbeddingForward)
LOCKSTEP_QUEUED(EmbeddingBackward)
LOCKSTEP_QUEUED(AttentionForward)
LOCKSTEP_QUEUED(AttentionBackward)
LOCKSTEP_QUEUED(AttentionMerge)
LOCKSTEP_QUEUED(CopyRows)
LOCKSTEP_QUEUED(GemmForward)
LOCKSTEP_QUEUED(GemmInputGradient)
LOCKSTEP_QUEUED(GemmWeightGradient)
LOCKSTEP_QUEUED(GemmBatched)
LOCKSTEP_QUEUED(RouterForward)
LOCKSTEP_QUEUED(RouterBackward)
LOCKSTEP_QUEUED(AssignSlots)
LOCKSTEP_QUEUED(Permute)
LOCKSTEP_QUEUED(Unpermute)
LOCKSTEP_QUEUED(UnpermuteBackward)
LOCKSTEP_QUEUED(GroupedGemmForward)
LOCKSTEP_QUEUED(GroupedGemmInputGradient)
LOCKSTEP_QUEUED(GroupedGemmWeightGradient)
LOCKSTEP_QUEUED(OptimizerStep)
LOCKSTEP_QUEUED(SumOfSquares)
LOCKSTEP_QUEUED(ClipFactor)
LOCKSTEP_QUEUED(Cast)
LOCKSTEP_QUEUED(Quantize)
LOCKSTEP_QUEUED(Dequantize)
LOCKSTEP_QUEUED(Fp8Encode)
LOCKSTEP_QUEUED(Fp8Decode)
LOCKSTEP_QUEUED(GemmFp8)
LOCKSTEP_QUEUED(GemmFp8Add)
LOCKSTEP_QUEUED(PackBucket)
LOCKSTEP_QUEUED(UnpackBucket)
LOCKSTEP_QUEUED(Reduction)
LOCKSTEP_QUEUED(ResidualAdd)
LOCKSTEP_QUEUED(SoftmaxForward)
LOCKSTEP_QUEUED(SoftmaxBackward)
LOCKSTEP_QUEUED(NormForward)
LOCKSTEP_QUEUED(NormBackward)
LOCKSTEP_QUEUED(Dropout)
#undef LOCKSTEP_QUEUED

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
