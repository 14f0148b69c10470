// SumOfSquares, ClipFactor and FiniteCheck: one result for a whole array, by two kernels. A block of the first kernel
// processes the tiles block, block + blocks, ..., and writes its part to the workspace; one block then adds the parts
// in order.
#include <cfloat>

#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_reductions.cuh"
#include "kernels/optimizer/optimizer.h"

namespace lockstep::kernels {
namespace {

constexpr int kAhead = 4;

// Squares are in f32 and overflow to infinity, which is intended for gradients.
struct SquareSum {
  using Part = WideSum;
  float sum = 0;
  __device__ __forceinline__ void add(float x) { sum += x * x; }
  __device__ __forceinline__ WideSum part() const { return {sum}; }
  __device__ __forceinline__ static double result(WideSum all) { return all.value; }
};

struct NotFinite {
  std::int32_t found = 0;
  __device__ __forceinline__ static NotFinite combine(NotFinite a, NotFinite b) { return {a.found | b.found}; }
  __device__ __forceinline__ NotFinite partner(int mask) const { return {__shfl_xor_sync(kAllLanes, found, mask)}; }
};
struct FiniteSearch {
  using Part = NotFinite;
  NotFinite mine;
  __device__ __forceinline__ void add(float x) { mine.found |= fabsf(x) <= FLT_MAX ? 0 : 1; }
  __device__ __forceinline__ NotFinite part() const { return mine; }
  __device__ __forceinline__ static std::int32_t result(NotFinite all) { return 1 - all.found; }
};

template <class Summary, class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads)
    parts_kernel(const T* x, std::int64_t count, typename Summary::Part* parts) {
  using InPack = Pack<T, kItems>;
  const std::int64_t thread = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.x} * kBlockThreads;
  const std::int64_t whole = count / kItems * kItems;
  Summary mine;
  for_packs<kAhead>(
      thread * kItems, threads * kItems, whole, [&](std::int64_t i) { return InPack::load(x + i); },
      [&](std::int64_t, const InPack& pack) {
#pragma unroll
        for (int i = 0; i < kItems; ++i) mine.add(pack[i]);
      });
  if (kItems > 1 && whole + thread < count) mine.add(to_f32(x[whole + thread]));
  const auto part = block_reduce(mine.part());
  if (threadIdx.x == 0) parts[blockIdx.x] = part;
}

template <class Summary, class Result>
__global__ void __launch_bounds__(kBlockThreads)
    result_kernel(const typename Summary::Part* parts, std::int64_t num_parts, Result* result) {
  using Part = typename Summary::Part;
  Part mine;
  for (std::int64_t p = threadIdx.x; p < num_parts; p += kBlockThreads) mine = Part::combine(mine, parts[p]);
  const Part all = block_reduce(mine);
  if (threadIdx.x == 0) *result = Summary::result(all);
}

template <class Summary, class Result>
void summarize(CudaContext& cuda, const char* name, const In& x, std::int64_t count, Result* result) {
  using Part = typename Summary::Part;
  with_cuda_activation_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int items = items_an_access(sizeof(T), 0, {x.data});
    const std::int64_t tile = std::int64_t{kBlockThreads} * kAhead * items;
    const std::int64_t parts = part_blocks((count + tile - 1) / tile, cuda.num_multiprocessors());
    auto* const memory = static_cast<Part*>(cuda.workspace(static_cast<std::size_t>(parts) * sizeof(Part)));
    with_items<kAccessBytes / sizeof(T)>(items, [&](auto constant) {
      launch(cuda, name, {.blocks = parts}, parts_kernel<Summary, T, decltype(constant)::value>, x.as<T>(), count,
             memory);
    });
    launch(cuda, name, {.blocks = 1}, result_kernel<Summary, Result>, memory, parts, result);
  });
}

// Adds in the order of the shards: there are few.
__global__ void clip_factor_kernel(const double* sums, std::int64_t shards, float most, float grad_scale, float* factor,
                                   float* norm) {
  double sum = 0;
  for (std::int64_t s = 0; s < shards; ++s) sum += sums[s];
  const double scale = grad_scale;
  const double root = scale * sqrt(sum);
  const double ratio = static_cast<double>(most) / (root + kClipEpsilon);
  *factor = static_cast<float>(scale * (ratio > 1 ? 1.0 : ratio));  // NaN stays NaN
  *norm = static_cast<float>(root);
}

}  // namespace

void run_cuda(const SumOfSquares& args, CudaContext& cuda) {
  summarize<SquareSum>(cuda, "sum_of_squares", args.x, args.count, args.sum.as<double>());
}

void run_cuda(const FiniteCheck& args, CudaContext& cuda) {
  summarize<FiniteSearch>(cuda, "finite_check", args.x, args.count, args.finite.as<std::int32_t>());
}

void run_cuda(const ClipFactor& args, CudaContext& cuda) {
  launch(cuda, "clip_factor", {.blocks = 1, .threads = 1}, clip_factor_kernel, args.sums.as<double>(), args.shards,
         args.most, args.grad_scale, args.factor.as<float>(), args.norm.as<float>());
}

}  // namespace lockstep::kernels
