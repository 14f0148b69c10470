// Products of experts' layers by wgmma, compiled only for compute capability 9.0a (kernels/CMakeLists.txt).
#include "kernels/moe/experts_hopper.cuh"

#include <algorithm>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/hopper_lane.cuh"

namespace lockstep::kernels {
namespace {

template <class Tiles>
__global__ void __launch_bounds__(kHopperThreads, 1)
    experts_hopper_kernel(const __grid_constant__ GroupedOperands<TensorMap> operands) {
  HopperLane lane;
  grouped_block<Tiles>(lane, operands, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
}

// Today's callers know the rows on the host. As an argument of a kernel they need no copy that the host waits for, and
// a captured graph keeps them.
struct FirstRows {
  std::int32_t at[kMostGroups + 1];
};
__global__ void first_rows_kernel(FirstRows rows, std::int32_t* to) {
  to[threadIdx.x] = rows.at[threadIdx.x];
}

// Writes [groups + 1] numbers.
void queue_first_rows(const GroupedShape& shape, std::int32_t* to, CudaContext& cuda) {
  std::int64_t next = 0;
  for (std::size_t first = 0; first <= shape.groups(); first += kMostGroups + 1) {
    FirstRows rows{};
    const std::size_t count = std::min<std::size_t>(kMostGroups + 1, shape.groups() + 1 - first);
    for (std::size_t i = 0; i < count; ++i) {
      rows.at[i] = static_cast<std::int32_t>(next);
      if (first + i < shape.groups()) next += shape.rows[first + i];
    }
    launch(cuda, "first rows of experts", {.blocks = 1, .threads = static_cast<int>(count)}, first_rows_kernel, rows,
           to + first);
  }
}

template <class Args>
core::DType dtype_of(const Args& args) {
  if constexpr (std::is_same_v<Args, GroupedGemmInputGradient>) {
    return args.dy.dtype;
  } else {
    return args.x.dtype;
  }
}

template <class Tiles, class Args>
void launch_groups(const Args& args, GroupRange range, const std::int32_t* first_rows, CudaContext& cuda) {
  const auto operands = operands_of_groups<Tiles, TensorMap>(args, range, first_rows, [&](const HeadTensor& tensor) {
    return encode_tensor_map(tensor, dtype_of(args), cuda.place());
  });
  const LaunchShape shape{
      .blocks = std::min<std::int64_t>(most_tiles<Tiles>(args.shape, range), cuda.num_multiprocessors()),
      .threads = kHopperThreads,
      .shared_bytes = GroupedShared<Tiles>::kBytes};
  launch(cuda, "experts by wgmma", shape, experts_hopper_kernel<Tiles>, operands);
}

template <class T, Direction kDirection, class Args>
void run_typed(const Args& args, CudaContext& cuda) {
  using Wide = ExpertTiles<T, kDirection, 256>;
  using Narrow = ExpertTiles<T, kDirection, 128>;
  auto* const first_rows = static_cast<std::int32_t*>(cuda.workspace(sizeof(std::int32_t) * (args.shape.groups() + 1)));
  queue_first_rows(args.shape, first_rows, cuda);
  for (std::size_t first = 0; first < args.shape.groups(); first += kMostGroups) {
    const GroupRange range{first, static_cast<int>(std::min<std::size_t>(kMostGroups, args.shape.groups() - first))};
    // Wide tiles read less, but only if there are enough for all multiprocessors.
    if (most_tiles<Wide>(args.shape, range) >= 2 * cuda.num_multiprocessors()) {
      launch_groups<Wide>(args, range, first_rows, cuda);
    } else {
      launch_groups<Narrow>(args, range, first_rows, cuda);
    }
  }
}

template <Direction kDirection, class Args>
void run_direction(const Args& args, CudaContext& cuda) {
  if (dtype_of(args) == core::DType::f16) return run_typed<__half, kDirection>(args, cuda);
  run_typed<__nv_bfloat16, kDirection>(args, cuda);
}

}  // namespace

void run_hopper_experts(const GroupedGemmForward& args, CudaContext& cuda) {
  run_direction<Direction::forward>(args, cuda);
}

void run_hopper_experts(const GroupedGemmInputGradient& args, CudaContext& cuda) {
  run_direction<Direction::input_gradient>(args, cuda);
}

void run_hopper_experts(const GroupedGemmWeightGradient& args, CudaContext& cuda) {
  run_direction<Direction::weight_gradient>(args, cuda);
}

}  // namespace lockstep::kernels
