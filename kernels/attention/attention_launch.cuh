// Attention on CUDA: bf16 and f16 by mma.sync with up to 128 columns per head, everything else by multiply-adds in f32
// with up to 256. A NaN or infinity in a key or value that a query does not see can reach the query if both are in one
// tile: 0 times it is NaN. attention_hopper.cu has the kernels by wgmma.
//
// The kernels of each type are compiled in a source of their own, which kernels/CMakeLists.txt writes.
#pragma once

#include "kernels/attention/attention_backward.cuh"
#include "kernels/attention/attention_forward.cuh"
#include "kernels/attention/attention_tiles.cuh"
#include "kernels/base/cuda_lane.cuh"
#include "kernels/base/cuda_launch.cuh"

namespace lockstep::kernels {

template <class Kernels>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_forward_kernel(ForwardOperands<typename Kernels::Value> operands) {
  CudaLane lane;
  attention_forward_block<typename Kernels::Forward>(lane, operands, blockIdx.x);
}

template <class T>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_numbers_kernel(BackwardOperands<T> operands, int num_rows) {
  CudaLane lane;
  attention_numbers_block(lane, operands, num_rows, blockIdx.x);
}

template <class Kernels>
__global__ void __launch_bounds__(kAttentionThreads)
    attention_backward_kernel(BackwardOperands<typename Kernels::Value> operands, std::int64_t keys_blocks) {
  CudaLane lane;
  attention_backward_block<Kernels>(lane, operands, keys_blocks, blockIdx.x);
}

template <class T, class Visit>
void with_kernels_for(const AttentionShape& s, const CudaContext& cuda, Visit&& visit) {
  with_attention_kernels<T>(static_cast<int>(s.head_columns), wants_small_tiles(s, cuda.num_multiprocessors()), visit);
}

template <class T>
void run_attention(const AttentionForward& args, CudaContext& cuda) {
  const AttentionShape& s = args.shape;
  const ForwardOperands<T> operands = operands_for<T>(args);
  with_kernels_for<T>(s, cuda, [&](auto chosen) {
    using Kernels = decltype(chosen);
    using Tiles = typename Kernels::Forward;
    const LaunchShape shape{.blocks = query_blocks_of(s, Tiles::kRows),
                            .threads = kAttentionThreads,
                            .shared_bytes = forward_shared_bytes<Tiles>()};
    launch(cuda, "attention_fwd", shape, attention_forward_kernel<Kernels>, operands);
  });
}

template <class T>
void run_attention(const AttentionBackward& args, CudaContext& cuda) {
  const AttentionShape& s = args.shape;
  const std::int64_t rows = s.batch * s.queries * s.heads;
  const std::size_t numbers_bytes = static_cast<std::size_t>(rows) * sizeof(QueryNumbers);
  const BackwardOperands<T> operands = operands_for<T>(args, static_cast<QueryNumbers*>(cuda.workspace(numbers_bytes)));
  const LaunchShape numbers_shape{.blocks = numbers_blocks<T>(operands.geometry, rows), .threads = kAttentionThreads};
  launch(cuda, "attention_bwd, numbers of queries", numbers_shape, attention_numbers_kernel<T>, operands,
         static_cast<int>(rows));
  with_kernels_for<T>(s, cuda, [&](auto chosen) {
    using Kernels = decltype(chosen);
    const LaunchShape shape{.blocks = backward_blocks_of<Kernels>(s),
                            .threads = kAttentionThreads,
                            .shared_bytes = gradient_shared_bytes<Kernels>()};
    launch(cuda, "attention_bwd", shape, attention_backward_kernel<Kernels>, operands, keys_blocks_of<Kernels>(s));
  });
}

}  // namespace lockstep::kernels
