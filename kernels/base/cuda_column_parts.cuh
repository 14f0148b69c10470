// Second kernel of sums over rows, column by column: the blocks of a first kernel have each written a partial sum; this
// one adds the partial sums.
#pragma once

#include <cstdint>

#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_reductions.cuh"

namespace lockstep::kernels {

struct ColumnParts {
  const float* parts;  // [num_parts][stride]; the first columns are added to outs[0], the next to outs[1]
  std::int64_t num_parts;
  std::int64_t stride;
  std::int64_t columns;  // columns of one output
  float* outs[2];
};

inline constexpr int kPartsThreads = kMostWarps * kWarpLanes;

// A block computes 32 columns of an output: each of its warps adds some of the parts, and the first warp adds the
// warps' sums, in the warps' order, to the values already there.
static __global__ void __launch_bounds__(kPartsThreads) add_column_parts_kernel(ColumnParts args) {
  wait_for_stream();
  __shared__ float of_warps[kMostWarps][kWarpLanes];
  const std::int64_t groups = (args.columns + kWarpLanes - 1) / kWarpLanes;
  const bool second = blockIdx.x >= groups;
  const std::int64_t column = (blockIdx.x - (second ? groups : 0)) * kWarpLanes + lane_index();
  float sum = 0;
  if (column < args.columns) {
    const float* const first = args.parts + (second ? args.columns : 0) + column;
#pragma unroll 8
    for (std::int64_t p = warp_index(); p < args.num_parts; p += kMostWarps) sum += first[p * args.stride];
  }
  of_warps[warp_index()][lane_index()] = sum;
  __syncthreads();
  if (warp_index() != 0 || column >= args.columns) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < kMostWarps; ++w) total += of_warps[w][lane_index()];
  args.outs[second ? 1 : 0][column] += total;
}

inline void queue_column_parts(CudaContext& cuda, const char* name, const ColumnParts& args, int num_outs) {
  const std::int64_t groups = (args.columns + kWarpLanes - 1) / kWarpLanes;
  launch_early(cuda, name, {.blocks = num_outs * groups, .threads = kPartsThreads}, add_column_parts_kernel, args);
}

}  // namespace lockstep::kernels
