#include "kernels/optimizer/optimizer.h"

#include <cmath>

#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_loops.cuh"
#include "kernels/base/cuda_reductions.cuh"

namespace lockstep::kernels {
namespace {

// Used in place of a narrow weight's type if the master is the weight.
struct NoWeights {};

// Everything is f32 except gradients and narrow weights, so packs have four elements.
template <class Gradient>
struct GradientIn {
  const Gradient* grad;
  const float* clip;
  float scale;

  template <int kItems>
  __device__ __forceinline__ Pack<Gradient, kItems> load(std::int64_t first) const {
    return Pack<Gradient, kItems>::load_once(grad + first);
  }
  __device__ __forceinline__ bool counts() const { return __ldg(clip) > 0; }
  __device__ __forceinline__ float factor() const { return scale * __ldg(clip); }
};

template <class Weight>
struct WeightOut {
  Weight* weights;

  template <int kItems>
  __device__ __forceinline__ void store(std::int64_t first, const Pack<float, kItems>& master) const {
    if constexpr (!std::is_same_v<Weight, NoWeights>) {
      Pack<Weight, kItems> out;
#pragma unroll
      for (int i = 0; i < kItems; ++i) out.set(i, master[i]);
      out.store(weights + first);
    }
  }
};

struct StepNumbers {
  float rate;
  float beta1;
  float fresh1;  // 1 - beta1
  float beta2;
  float fresh2;
  float epsilon;
  float decay;
  float unbias1;  // 1 / c1 (rules.h)
  float unbias2;
  const float* schedule;  // if not null, replaces rate and the two fields before

  __device__ __forceinline__ StepNumbers now() const {
    if (schedule == nullptr) return *this;
    StepNumbers scheduled = *this;
    scheduled.rate = __ldg(schedule);
    scheduled.unbias1 = 1 / __ldg(schedule + 1);
    scheduled.unbias2 = 1 / __ldg(schedule + 2);
    return scheduled;
  }
};

// Memory bounds this kernel: a rule loads and stores only the moments that it has.
template <OptimizerKind kKind, class Gradient, class Weight>
struct Step {
  static constexpr OptimizerRule kRule = rule_of(kKind);
  static constexpr bool kFirst = kRule.first_moment;
  static constexpr bool kSecond = kRule.second_moment;
  GradientIn<Gradient> gradient;
  WeightOut<Weight> weight;
  StepNumbers numbers;
  float* master;
  float* m;
  float* v;

  template <int kItems>
  struct Inputs {
    Pack<Gradient, kItems> gradient;
    Pack<float, kItems> master;
    Pack<float, kItems> m;
    Pack<float, kItems> v;
  };
  template <int kItems>
  __device__ Inputs<kItems> load(std::int64_t first) const {
    using Floats = Pack<float, kItems>;
    Inputs<kItems> in;
    in.gradient = gradient.template load<kItems>(first);
    in.master = Floats::load_once(master + first);
    if constexpr (kFirst) in.m = Floats::load_once(m + first);
    if constexpr (kSecond) in.v = Floats::load_once(v + first);
    return in;
  }
  template <int kItems>
  __device__ void store(std::int64_t first, Inputs<kItems> in) const {
    if (!gradient.counts()) return;
    const StepNumbers n = numbers.now();
    const float factor = gradient.factor();
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      float g = in.gradient[i] * factor;
      if constexpr (!kRule.decouples_decay) g += n.decay * in.master[i];
      float update = g;
      if constexpr (kFirst) {
        constexpr bool kAverages = kRule.corrects_bias;
        update = n.beta1 * in.m[i] + (kAverages ? n.fresh1 * g : g);
        in.m.set(i, update);
      }
      if constexpr (kSecond) {
        const float next_v = n.beta2 * in.v[i] + n.fresh2 * g * g;
        in.v.set(i, next_v);
        update = update * n.unbias1 / (sqrtf(next_v * n.unbias2) + n.epsilon);
      }
      if constexpr (kRule.decouples_decay) update += n.decay * in.master[i];
      in.master.set(i, in.master[i] - n.rate * update);
    }
    if constexpr (kFirst) in.m.store_once(m + first);
    if constexpr (kSecond) in.v.store_once(v + first);
    in.master.store_once(master + first);
    weight.store(first, in.master);
  }
};

// Calls visit(gradient's zero, weight's zero).
template <class Args, class Visit>
void with_types(const Args& args, Visit&& visit) {
  with_cuda_activation_type(args.grad.dtype, [&](auto gradient) {
    if (!args.narrow_weights) return visit(gradient, NoWeights{});
    if (args.weights.dtype == core::DType::bf16) return visit(gradient, __nv_bfloat16{});
    return visit(gradient, __half{});
  });
}

}  // namespace

void run_cuda(const OptimizerStep& args, CudaContext& cuda) {
  const BiasCorrections corrections = bias_corrections(args.kind, args.numbers, args.step);
  const OptimizerNumbers& n = args.numbers;
  const StepNumbers numbers{static_cast<float>(n.rate),
                            static_cast<float>(n.beta1),
                            static_cast<float>(1 - n.beta1),
                            static_cast<float>(n.beta2),
                            static_cast<float>(1 - n.beta2),
                            static_cast<float>(n.epsilon),
                            static_cast<float>(n.decay),
                            static_cast<float>(1 / corrections.first),
                            static_cast<float>(1 / corrections.second),
                            args.scheduled ? args.schedule.as<float>() : nullptr};
  const int items = items_an_access(sizeof(float), 0,
                                    {args.grad.data, args.master.data, args.m.data, args.v.data, args.weights.data});
  with_optimizer(args.kind, [&](auto kind) {
    with_types(args, [&](auto gradient, auto weight) {
      using G = decltype(gradient);
      using W = decltype(weight);
      const Step<decltype(kind)::value, G, W> step{{args.grad.as<G>(), args.clip.as<float>(), args.grad_scale},
                                                   {args.weights.as<W>()},
                                                   numbers,
                                                   args.master.as<float>(),
                                                   args.m.as<float>(),
                                                   args.v.as<float>()};
      run_elementwise<sizeof(float)>(cuda, args.name().data(), step, args.count, items);
    });
  });
}

// SumOfSquares: one sum for a whole array, by two kernels. A block of the first kernel processes the tiles block,
// block + blocks, ..., and writes its part to the workspace; one block then adds the parts in order.
namespace {

constexpr int kAhead = 4;

// Squares are in f32 and overflow to infinity, which is intended for gradients.
template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) squares_kernel(const T* x, std::int64_t count, WideSum* parts) {
  using InPack = Pack<T, kItems>;
  const std::int64_t thread = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.x} * kBlockThreads;
  const std::int64_t whole = count / kItems * kItems;
  float sum = 0;
  for_packs<kAhead>(
      thread * kItems, threads * kItems, whole, [&](std::int64_t i) { return InPack::load(x + i); },
      [&](std::int64_t, const InPack& pack) {
#pragma unroll
        for (int i = 0; i < kItems; ++i) sum += pack[i] * pack[i];
      });
  if (kItems > 1 && whole + thread < count) {
    const float last = to_f32(x[whole + thread]);
    sum += last * last;
  }
  const WideSum part = block_reduce(WideSum{sum});
  if (threadIdx.x == 0) parts[blockIdx.x] = part;
}

__global__ void __launch_bounds__(kBlockThreads)
    sum_of_parts_kernel(const WideSum* parts, std::int64_t num_parts, double* sum) {
  WideSum mine;
  for (std::int64_t p = threadIdx.x; p < num_parts; p += kBlockThreads) mine = WideSum::combine(mine, parts[p]);
  const WideSum all = block_reduce(mine);
  if (threadIdx.x == 0) *sum = all.value;
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
  with_packs(args.x.dtype, 0, {args.x.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    const std::int64_t tile = std::int64_t{kBlockThreads} * kAhead * items;
    const std::int64_t parts = part_blocks((args.count + tile - 1) / tile, cuda.num_multiprocessors());
    auto* const memory = static_cast<WideSum*>(cuda.workspace(static_cast<std::size_t>(parts) * sizeof(WideSum)));
    launch(cuda, "sum_of_squares", {.blocks = parts}, squares_kernel<T, decltype(items)::value>, args.x.as<T>(),
           args.count, memory);
    launch(cuda, "sum_of_squares", {.blocks = 1}, sum_of_parts_kernel, memory, parts, args.sum.as<double>());
  });
}

void run_cuda(const ClipFactor& args, CudaContext& cuda) {
  launch(cuda, "clip_factor", {.blocks = 1, .threads = 1}, clip_factor_kernel, args.sums.as<double>(), args.shards,
         args.most, args.grad_scale, args.factor.as<float>(), args.norm.as<float>());
}

}  // namespace lockstep::kernels
