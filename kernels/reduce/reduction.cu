#include "core/error.h"
#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/reduce/reduction.h"

namespace lockstep::kernels {
namespace {

using core::ReduceOp;

// The sources' addresses are an argument of the kernel, so that no memory is needed and a graph captures them.
constexpr std::int64_t kMostSources = 480;
constexpr int kSourcesAhead = 4;

template <class T>
struct Sources {
  const T* list[kMostSources];
  std::int64_t num_sources;
  std::int64_t count;
  std::int64_t average_over;  // 0: no average
  T* destination;
};

// Combines kItems elements of all sources, in the sources' order.
template <ReduceOp kOp, class T, int kItems>
__device__ __forceinline__ void combine_pack(const Sources<T>& sources, std::int64_t at) {
  using InPack = Pack<T, kItems>;
  Wide<T> values[kItems];
  auto pack = InPack::load(sources.list[0] + at);
#pragma unroll
  for (int i = 0; i < kItems; ++i) values[i] = widened(pack.items[i]);
  for_packs<kSourcesAhead>(
      1, 1, sources.num_sources, [&](std::int64_t k) { return InPack::load(sources.list[k] + at); },
      [&](std::int64_t, const InPack& next) {
#pragma unroll
        for (int i = 0; i < kItems; ++i) values[i] = combined<kOp>(values[i], widened(next.items[i]));
      });
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const Wide<T> value = sources.average_over > 0 ? averaged(values[i], sources.average_over) : values[i];
    pack.items[i] = narrowed<T>(value);
  }
  pack.store(sources.destination + at);
}

template <ReduceOp kOp, class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) combine_kernel(const __grid_constant__ Sources<T> sources) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * kBlockThreads * kItems;
  const std::int64_t whole = sources.count / kItems * kItems;
  for (std::int64_t at = thread * kItems; at < whole; at += stride) combine_pack<kOp, T, kItems>(sources, at);
  if (kItems > 1 && whole + thread < sources.count) combine_pack<kOp, T, 1>(sources, whole + thread);
}

int items_of(const Reduction& args, std::size_t elem_bytes) {
  int items = items_an_access(elem_bytes, 0, {args.destination.data});
  for (const In& source : args.sources) {
    if (items_an_access(elem_bytes, 0, {source.data}) == 1) items = 1;
  }
  return items;
}

template <class T>
void combine(const Reduction& args, CudaContext& cuda) {
  Sources<T> sources{.list = {},
                     .num_sources = args.num_sources,
                     .count = args.count,
                     .average_over = args.average_over,
                     .destination = args.destination.as<T>()};
  for (std::size_t k = 0; k < args.sources.size(); ++k) sources.list[k] = args.sources[k].as<T>();
  with_items<kAccessBytes / sizeof(T)>(items_of(args, sizeof(T)), [&](auto constant) {
    constexpr int kItems = decltype(constant)::value;
    constexpr std::int64_t kTile = std::int64_t{kBlockThreads} * kItems;
    const LaunchShape shape{.blocks = grid_blocks((args.count + kTile - 1) / kTile, cuda.num_multiprocessors())};
    with_op(args.op, [&](auto op) {
      launch(cuda, "reduction", shape, combine_kernel<decltype(op)::value, T, kItems>, sources);
    });
  });
}

// With one source, bits are moved, whatever their meaning.
void copy(const Reduction& args, CudaContext& cuda) {
  if (args.destination.data == args.sources[0].data) return;
  core::check_cuda(cudaMemcpyAsync(args.destination.data, args.sources[0].data, size_bytes(args.dtype, args.count),
                                   cudaMemcpyDeviceToDevice, stream_of(cuda)),
                   "cudaMemcpyAsync", cuda.place());
}

}  // namespace

void run_cuda(const Reduction& args, CudaContext& cuda) {
  check_at_most("reduction on CUDA", "num_sources", args.num_sources, kMostSources);
  if (args.num_sources == 1 && args.average_over <= 1) return copy(args, cuda);
  with_combined_type(args.dtype, [&](auto zero) { combine<decltype(zero)>(args, cuda); });
}

}  // namespace lockstep::kernels
