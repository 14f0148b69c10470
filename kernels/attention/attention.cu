// Attention on CUDA: bf16 and f16 by mma.sync with heads of up to 128 columns, all else by multiply-adds in f32, up to
// 256. A NaN or an infinity in a key or value that a query does not see can reach the query where both are in one tile:
// 0 times it is NaN. wgmma and TMA, which Hopper needs for its full rate, are a step to come.
#include "kernels/attention/attention.h"

#include <algorithm>
#include <limits>
#include <string>

#include "core/error.h"
#include "kernels/attention/attention_backward.cuh"
#include "kernels/attention/attention_forward.cuh"
#include "kernels/attention/attention_lane.cuh"
#include "kernels/attention/attention_sizes.cuh"
#include "kernels/base/cuda_launch.cuh"

namespace lockstep::kernels {
namespace {

template <class Tiles>
__global__ void __launch_bounds__(kAttentionThreads) forward_kernel(ForwardOperands<typename Tiles::Value> operands) {
  CudaLane lane;
  attention_forward_block<Tiles>(lane, operands, blockIdx.x);
}

template <class T>
__global__ void __launch_bounds__(kAttentionThreads) delta_kernel(BackwardOperands<T> operands, std::int64_t num_rows) {
  CudaLane lane;
  attention_delta_block(lane, operands, num_rows, blockIdx.x);
}

template <class Tiles>
__global__ void __launch_bounds__(kAttentionThreads) queries_kernel(BackwardOperands<typename Tiles::Value> operands) {
  CudaLane lane;
  attention_queries_block<Tiles>(lane, operands, blockIdx.x);
}

template <class Tiles>
__global__ void __launch_bounds__(kAttentionThreads) keys_kernel(BackwardOperands<typename Tiles::Value> operands) {
  CudaLane lane;
  attention_keys_block<Tiles>(lane, operands, blockIdx.x);
}

void check_at_most(std::string_view kernel, std::string_view name, std::int64_t value, std::int64_t most) {
  if (value <= most) return;
  throw core::usage_error(std::string(kernel) + " on CUDA: " + std::string(name) + " is " + std::to_string(value) +
                          "; allowed: at most " + std::to_string(most));
}

void check_limits(std::string_view kernel, const AttentionShape& s) {
  constexpr std::int64_t kMostLength = std::int64_t{1} << 30;  // rows and columns of tiles are int
  constexpr std::int64_t kMostRows = std::numeric_limits<int>::max();
  check_at_most(kernel, "head_columns", s.head_columns, kMostHeadColumns);
  check_at_most(kernel, "queries", s.queries, kMostLength);
  check_at_most(kernel, "keys", s.keys, kMostLength);
  check_at_most(kernel, "batch * heads * length", s.batch * s.heads * std::max(s.queries, s.keys), kMostRows);
}

template <class T>
void run_forward(const AttentionForward& args, CudaContext& cuda) {
  const AttentionShape& s = args.shape;
  const ForwardOperands<T> operands = operands_for<T>(args);
  with_attention_kernels<T>(static_cast<int>(s.head_columns), [&](auto kernels, auto columns) {
    using Tiles = typename decltype(kernels)::template Forward<decltype(columns)::value>;
    const LaunchShape shape{.blocks = blocks_of(s, s.queries, Tiles::kRows),
                            .threads = kAttentionThreads,
                            .shared_bytes = forward_shared_bytes<Tiles>()};
    launch(cuda, "attention_fwd", shape, forward_kernel<Tiles>, operands);
  });
}

template <class T>
void run_backward(const AttentionBackward& args, CudaContext& cuda) {
  const AttentionShape& s = args.shape;
  const std::int64_t rows = s.batch * s.queries * s.heads;
  auto* const delta = static_cast<float*>(cuda.workspace(size_bytes(core::DType::f32, rows)));
  const BackwardOperands<T> operands = operands_for<T>(args, delta);
  const LaunchShape delta_shape{.blocks = (rows + kAttentionWarps - 1) / kAttentionWarps, .threads = kAttentionThreads};
  launch(cuda, "attention_bwd, delta", delta_shape, delta_kernel<T>, operands, rows);
  with_attention_kernels<T>(static_cast<int>(s.head_columns), [&](auto kernels, auto columns) {
    using Queries = typename decltype(kernels)::template Queries<decltype(columns)::value>;
    using Keys = typename decltype(kernels)::template Keys<decltype(columns)::value>;
    const LaunchShape queries_shape{.blocks = blocks_of(s, s.queries, Queries::kRows),
                                    .threads = kAttentionThreads,
                                    .shared_bytes = backward_shared_bytes<Queries>()};
    launch(cuda, "attention_bwd, queries", queries_shape, queries_kernel<Queries>, operands);
    const LaunchShape keys_shape{.blocks = blocks_of(s, s.keys, Keys::kRows) * Keys::kSlices,
                                 .threads = kAttentionThreads,
                                 .shared_bytes = backward_shared_bytes<Keys>()};
    launch(cuda, "attention_bwd, keys", keys_shape, keys_kernel<Keys>, operands);
  });
}

}  // namespace

void run_cuda(const AttentionForward& args, CudaContext& cuda) {
  check_limits(args.name(), args.shape);
  with_cuda_activation_type(args.q.dtype, [&](auto zero) { run_forward<decltype(zero)>(args, cuda); });
}

void run_cuda(const AttentionBackward& args, CudaContext& cuda) {
  check_limits(args.name(), args.shape);
  with_cuda_activation_type(args.q.dtype, [&](auto zero) { run_backward<decltype(zero)>(args, cuda); });
}

}  // namespace lockstep::kernels
