// Kernel launches with checked results.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "core/cuda_call.h"
#include "kernels/base/cuda_context.h"
#include "kernels/base/cuda_geometry.h"
#include "kernels/base/cuda_instructions.cuh"

namespace lockstep::kernels {

struct LaunchShape {
  std::int64_t blocks;
  int threads = kBlockThreads;
  std::size_t shared_bytes = 0;  // dynamic shared memory
  int cluster = 1;               // blocks per thread-block cluster; it divides `blocks`
};

inline LaunchShape shape_of(const RowLayout& layout) {
  return {.blocks = layout.blocks,
          .threads = layout.threads,
          .shared_bytes = layout.stash_bytes,
          .cluster = layout.cluster};
}

// The launch of a kernel whose warps take rows one at a time.
inline LaunchShape warps_for(std::int64_t rows, const CudaContext& cuda) {
  return {.blocks = grid_blocks((rows + kWarpsPerBlock - 1) / kWarpsPerBlock, cuda.num_multiprocessors())};
}

inline constexpr std::size_t kSharedBytesOfEveryKernel = std::size_t{48} << 10;  // more must be requested

inline cudaStream_t stream_of(const CudaContext& cuda) {
  return static_cast<cudaStream_t>(cuda.stream());
}

template <class... Params>
void queue_launch(const CudaContext& cuda, const char* name, LaunchShape shape, bool early, void (*kernel)(Params...),
                  const std::type_identity_t<Params>&... args) {
  if (shape.shared_bytes > kSharedBytesOfEveryKernel) {
    core::check_cuda(
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shape.shared_bytes)),
        name, cuda.place());
  }
  cudaLaunchAttribute attributes[2] = {};
  unsigned num_attributes = 0;
  if (early) {
    attributes[num_attributes].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[num_attributes++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[num_attributes].id = cudaLaunchAttributeClusterDimension;
    attributes[num_attributes].val.clusterDim.x = static_cast<unsigned>(shape.cluster);
    attributes[num_attributes].val.clusterDim.y = 1;
    attributes[num_attributes++].val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream_of(cuda);
  config.attrs = attributes;
  config.numAttrs = num_attributes;
  core::check_launch(cudaLaunchKernelEx(&config, kernel, args...), name, cuda.place(), cuda.queue());
}

// Queues kernel(args...) on the context's stream. `name` identifies it in errors: "gelu_fwd".
template <class... Params>
void launch(const CudaContext& cuda, const char* name, LaunchShape shape, void (*kernel)(Params...),
            const std::type_identity_t<Params>&... args) {
  queue_launch(cuda, name, shape, false, kernel, args...);
}

// The same for a kernel that calls wait_for_stream() in all threads before it touches memory. With
// LOCKSTEP_CUDA_EARLY=1 its blocks may start once all blocks of the previous kernel have started (programmatic
// dependent launch; CUDA Programming Guide, Programmatic Dependent Launch and Synchronization), which hides its launch
// and start latency.
template <class... Params>
void launch_early(const CudaContext& cuda, const char* name, LaunchShape shape, void (*kernel)(Params...),
                  const std::type_identity_t<Params>&... args) {
  queue_launch(cuda, name, shape, core::launches_early(), kernel, args...);
}

// Launches one version of a kernel over rows, chosen by row_layout(): a warp per row, or blocks that keep
// `stash_bytes_an_elem` of a row in shared memory, or blocks that keep nothing.
template <class Rows>
void launch_rows(const CudaContext& cuda, const char* name, const Rows& rows, int items,
                 std::size_t stash_bytes_an_elem, void (*by_warps)(Rows), void (*stashed)(Rows),
                 void (*unstashed)(Rows)) {
  const RowLayout layout = row_layout(rows.rows, rows.columns, items, stash_bytes_an_elem, cuda.num_multiprocessors(),
                                      cuda.most_cluster_blocks());
  launch_early(cuda, name, shape_of(layout),
               layout.warp_per_row      ? by_warps
               : layout.stash_bytes > 0 ? stashed
                                        : unstashed,
               rows);
}

// Waits until all work queued before is done and its stores are visible; returns at once if the kernel was not launched
// early. First it lets blocks of the next kernel start on free resources; these then wait here.
__device__ __forceinline__ void wait_for_stream() {
  let_next_launch_begin();
  wait_for_earlier_launch();
}

}  // namespace lockstep::kernels
