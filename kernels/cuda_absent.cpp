// In place of all .cu files in a build without CUDA: every kernel says why it cannot run there.
#include <string>

#include "core/error.h"
#include "kernels/attention/attention.h"
#include "kernels/base/cuda_context.h"
#include "kernels/bucket/bucket.h"
#include "kernels/cast/cast.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/dropout/dropout.h"
#include "kernels/embedding/embedding.h"
#include "kernels/gelu/gelu.h"
#include "kernels/gemm/gemm.h"
#include "kernels/norm/norm.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/quantize/quantize.h"
#include "kernels/reduce/reduction.h"
#include "kernels/residual/residual.h"
#include "kernels/softmax/softmax.h"

namespace lockstep::kernels {
namespace {

[[noreturn]] void not_built(std::string_view kernel) {
  throw core::Error(core::Failure::not_built, std::string(kernel) + " on CUDA: " + LOCKSTEP_WHY_CUDA);
}

}  // namespace

void run_cuda(const GeluForward& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const GeluBackward& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const CrossEntropy& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const CrossEntropyStats& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const CrossEntropyFinish& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const EmbeddingForward& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const EmbeddingBackward& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const AttentionForward& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const AttentionBackward& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const GemmForward& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const GemmInputGradient& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const GemmWeightGradient& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const GemmBatched& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const AdamW& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const SgdMomentum& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const SumOfSquares& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const ClipFactor& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const FiniteCheck& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const Cast& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const Quantize& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const Dequantize& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const PackBucket& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const UnpackBucket& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const Reduction& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const ResidualAdd& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const SoftmaxForward& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const SoftmaxBackward& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const NormForward& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const NormBackward& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}
void run_cuda(const Dropout& args, CudaContext& /*cuda*/) {
  not_built(args.name());
}

}  // namespace lockstep::kernels
