// Kernel launches with checked results.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>

#include "core/cuda_call.h"
#include "core/error.h"
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

inline cudaStream_t stream_of(const CudaContext& cuda) {
  return static_cast<cudaStream_t>(cuda.stream());
}

// A block may have 48 KiB of static and dynamic shared memory together, or the device's opt-in limit (227 KiB on
// Hopper) once that has been requested for its kernel. A context requests it at a kernel's first launch with dynamic
// shared memory, and always the most that the kernel's static shared memory leaves: ranks that share a device share the
// attributes of its kernels, so a request for one launch could lower the limit below what another rank is launching.
class DynamicSharedMemory {
 public:
  explicit DynamicSharedMemory(CudaContext& cuda) {
    core::check_cuda(cudaDeviceGetAttribute(&most_bytes_, cudaDevAttrMaxSharedMemoryPerBlockOptin, cuda.place().device),
                     "cudaDeviceGetAttribute", cuda.place());
  }

  // Throws Error(cuda) if the kernel cannot have that many bytes.
  void request(CudaContext& cuda, const char* name, const void* kernel, std::size_t dynamic_bytes) {
    const auto [found, is_new] = most_dynamic_bytes_.try_emplace(kernel, 0);
    if (is_new) found->second = opt_in(cuda, name, kernel);
    if (dynamic_bytes <= static_cast<std::size_t>(found->second)) return;
    throw core::Error(core::Failure::cuda, std::string(name) + ": " + std::to_string(dynamic_bytes) +
                                               " bytes of dynamic shared memory per block; allowed on CUDA device " +
                                               std::to_string(cuda.place().device) + ": " +
                                               std::to_string(found->second) + ", which is " +
                                               std::to_string(most_bytes_) + " less the kernel's static shared memory");
  }

 private:
  int opt_in(CudaContext& cuda, const char* name, const void* kernel) const {
    cudaFuncAttributes attributes{};
    core::check_cuda(cudaFuncGetAttributes(&attributes, kernel), name, cuda.place());
    const int dynamic_bytes = most_bytes_ - static_cast<int>(attributes.sharedSizeBytes);
    core::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic_bytes), name,
                     cuda.place());
    return dynamic_bytes;
  }

  int most_bytes_ = 0;
  std::map<const void*, int> most_dynamic_bytes_;  // [kernel]
};

template <class... Params>
void queue_launch(CudaContext& cuda, const char* name, LaunchShape shape, bool early, void (*kernel)(Params...),
                  const std::type_identity_t<Params>&... args) {
  if (shape.shared_bytes > 0) {
    cuda.kept<DynamicSharedMemory>().request(cuda, name, reinterpret_cast<const void*>(kernel), shape.shared_bytes);
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
void launch(CudaContext& cuda, const char* name, LaunchShape shape, void (*kernel)(Params...),
            const std::type_identity_t<Params>&... args) {
  queue_launch(cuda, name, shape, false, kernel, args...);
}

// The same for a kernel that calls wait_for_stream() in all threads before it touches memory. With
// LOCKSTEP_CUDA_EARLY=1 its blocks may start once all blocks of the previous kernel have started (programmatic
// dependent launch; CUDA Programming Guide, Programmatic Dependent Launch and Synchronization), which hides its launch
// and start latency.
template <class... Params>
void launch_early(CudaContext& cuda, const char* name, LaunchShape shape, void (*kernel)(Params...),
                  const std::type_identity_t<Params>&... args) {
  queue_launch(cuda, name, shape, core::launches_early(), kernel, args...);
}

// Launches one version of a kernel over rows, chosen by row_layout(): a warp per row, or blocks that keep
// `stash_bytes_an_elem` of a row in shared memory, or blocks that keep nothing.
template <class Rows>
void launch_rows(CudaContext& cuda, const char* name, const Rows& rows, int items, std::size_t stash_bytes_an_elem,
                 void (*by_warps)(Rows), void (*stashed)(Rows), void (*unstashed)(Rows)) {
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
