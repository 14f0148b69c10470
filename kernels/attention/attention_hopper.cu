// Attention by wgmma, compiled only for compute capability 9.0a (kernels/CMakeLists.txt).
#include "kernels/attention/attention_hopper_backward.cuh"
#include "kernels/attention/attention_hopper_forward.cuh"
#include "kernels/attention/attention_launch.cuh"
#include "kernels/base/hopper_lane.cuh"

namespace lockstep::kernels {
namespace {

template <class Tiles>
__global__ void __launch_bounds__(kHopperThreads, 1) attention_hopper_forward_kernel(
    const __grid_constant__ HopperForwardOperands<typename Tiles::Value, TensorMap> operands) {
  HopperLane lane;
  hopper_forward_block<Tiles>(lane, operands, blockIdx.x);
}

template <class Tiles>
__global__ void __launch_bounds__(kHopperThreads, 1) attention_hopper_backward_kernel(
    const __grid_constant__ HopperBackwardOperands<typename Tiles::Value, TensorMap> operands) {
  HopperLane lane;
  hopper_backward_block<Tiles>(lane, operands);
}

template <class Tiles, class T>
__global__ void attention_dq_kernel(AttentionGeometry geometry, const float* sums, T* dq) {
  dq_from_sums<Tiles, CudaLane>(geometry, sums, dq, std::int64_t{blockIdx.x} * kAttentionThreads + threadIdx.x);
}

template <class T, int kColumns>
void run_columns(const AttentionForward& args, CudaContext& cuda) {
  using Tiles = HopperForwardTiles<T, kColumns>;
  const auto operands = hopper_operands<Tiles, TensorMap>(
      args, [&](const HeadTensor& tensor) { return encode_tensor_map(tensor, args.q.dtype, cuda.place()); });
  const LaunchShape shape{.blocks = query_blocks_of(args.shape, Tiles::kBlockRows),
                          .threads = kHopperThreads,
                          .shared_bytes = HopperForwardShared<Tiles>::kBytes};
  launch(cuda, "attention_fwd by wgmma", shape, attention_hopper_forward_kernel<Tiles>, operands);
}

HopperBackwardMemory memory_of(const HopperBackwardSizes& sizes, CudaContext& cuda) {
  const std::size_t sums_bytes = static_cast<std::size_t>(sizes.dq_sums) * sizeof(float);
  const std::size_t numbers_bytes = static_cast<std::size_t>(sizes.numbers) * sizeof(QueryNumbers);
  const std::size_t counters_bytes = static_cast<std::size_t>(sizes.counters) * sizeof(std::uint32_t);
  auto* const at = static_cast<std::byte*>(cuda.workspace(sums_bytes + numbers_bytes + counters_bytes));
  const HopperBackwardMemory memory{reinterpret_cast<QueryNumbers*>(at + sums_bytes), reinterpret_cast<float*>(at),
                                    reinterpret_cast<std::uint32_t*>(at + sums_bytes + numbers_bytes)};
  core::check_cuda(cudaMemsetAsync(memory.counters, 0, counters_bytes, stream_of(cuda)), "cudaMemsetAsync",
                   cuda.place());
  return memory;
}

template <class T, int kColumns>
void run_columns(const AttentionBackward& args, CudaContext& cuda) {
  using Tiles = HopperBackwardTiles<T, kColumns>;
  const AttentionShape& s = args.shape;
  const HopperBackwardSizes sizes = backward_sizes<Tiles>(s);
  const HopperBackwardMemory memory = memory_of(sizes, cuda);
  const BackwardOperands<T> plain = operands_for<T>(args, memory.numbers);
  const LaunchShape numbers_shape{.blocks = numbers_blocks<T>(plain.geometry, sizes.numbers),
                                  .threads = kAttentionThreads};
  launch(cuda, "attention_bwd, numbers of queries", numbers_shape, attention_numbers_kernel<T>, plain,
         static_cast<int>(sizes.numbers));
  const auto operands = hopper_operands<Tiles, TensorMap>(
      args, memory, [&](const HeadTensor& tensor) { return encode_tensor_map(tensor, args.q.dtype, cuda.place()); });
  const LaunchShape shape{.blocks = key_blocks_of(s, Tiles::kBlockRows),
                          .threads = kHopperThreads,
                          .shared_bytes = HopperBackwardShared<Tiles>::kBytes};
  launch(cuda, "attention_bwd by wgmma", shape, attention_hopper_backward_kernel<Tiles>, operands);
  const LaunchShape dq_shape{.blocks = sizes.dq_sums / 2 / kAttentionThreads, .threads = kAttentionThreads};
  launch(cuda, "attention_bwd by wgmma, dq", dq_shape, attention_dq_kernel<Tiles, T>, plain.geometry, memory.dq_sums,
         plain.dq);
}

template <class Args>
void run(const Args& args, CudaContext& cuda) {
  with_cuda_activation_type(args.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 2) {
      if (args.shape.head_columns == 64) return run_columns<T, 64>(args, cuda);
      run_columns<T, 128>(args, cuda);
    }
  });
}

}  // namespace

void run_hopper_attention(const AttentionForward& args, CudaContext& cuda) {
  run(args, cuda);
}

void run_hopper_attention(const AttentionBackward& args, CudaContext& cuda) {
  run(args, cuda);
}

}  // namespace lockstep::kernels
