#include "kernels/attention/attention.h"

#include <algorithm>
#include <limits>
#include <string>

#include "core/error.h"
#include "kernels/attention/attention_geometry.cuh"
#include "kernels/base/cuda_context.h"
#include "kernels/base/cuda_elements.cuh"

namespace lockstep::kernels {

// Defined in attention_launch.cuh.
template <class T>
void run_attention(const AttentionForward& args, CudaContext& cuda);
template <class T>
void run_attention(const AttentionBackward& args, CudaContext& cuda);
// Defined in attention_hopper.cu.
void run_hopper_attention(const AttentionForward& args, CudaContext& cuda);
void run_hopper_attention(const AttentionBackward& args, CudaContext& cuda);

namespace {

void check_limits(const AttentionShape& s) {
  constexpr std::string_view kKernel = "attention on CUDA";
  constexpr std::int64_t kMostLength = std::int64_t{1} << 30;  // rows and columns of tiles are ints
  constexpr std::int64_t kMostRows = std::numeric_limits<int>::max();
  check_at_most(kKernel, "head_columns", s.head_columns, kMostHeadColumns);
  check_at_most(kKernel, "queries", s.queries, kMostLength);
  check_at_most(kKernel, "keys", s.keys, kMostLength);
  check_at_most(kKernel, "batch * heads * length", s.batch * s.heads * std::max(s.queries, s.keys), kMostRows);
}

template <class Args>
void run(const Args& args, CudaContext& cuda) {
  check_limits(args.shape);
  if (takes_wgmma(args.shape, args.q.dtype, begin_at_multiples_of(16, args), cuda))
    return run_hopper_attention(args, cuda);
  with_cuda_activation_type(args.q.dtype, [&](auto zero) { run_attention<decltype(zero)>(args, cuda); });
}

}  // namespace

void run_cuda(const AttentionForward& args, CudaContext& cuda) {
  run(args, cuda);
}

void run_cuda(const AttentionBackward& args, CudaContext& cuda) {
  run(args, cuda);
}

}  // namespace lockstep::kernels
