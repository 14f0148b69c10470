#include <climits>

#include "kernels/base/cuda_loops.cuh"
#include "kernels/moe/router.h"

namespace lockstep::kernels {
namespace {

// A token's experts in the registers of a warp: lane l has the experts l, l + 32, ...
constexpr int kHeld = static_cast<int>(RouterShape::kMostExperts) / kWarpLanes;
constexpr int kMostChoices = static_cast<int>(RouterShape::kMostChoices);

template <class Visit>
__device__ __forceinline__ void for_experts(std::int64_t experts, Visit&& visit) {
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    const int e = k * kWarpLanes + lane_index();
    if (e < experts) visit(k, e);
  }
}

// The expert with the largest key; of equal keys, the one with the lower number.
struct Best {
  float key = -INFINITY;
  int expert = INT_MAX;
  __device__ __forceinline__ static Best combine(Best a, Best b) {
    return a.key > b.key || (a.key == b.key && a.expert < b.expert) ? a : b;
  }
  __device__ __forceinline__ Best partner(int mask) const {
    return {__shfl_xor_sync(kAllLanes, key, mask), __shfl_xor_sync(kAllLanes, expert, mask)};
  }
};

// Turns logits into scores; for the softmax, returns log(sum of exp(logits)).
__device__ __forceinline__ float make_scores(const RouterShape& shape, float (&held)[kHeld]) {
  if (shape.scores == RouterScores::sigmoid) {
    for_experts(shape.experts, [&](int k, int) { held[k] = 1.0F / (1.0F + expf(-held[k])); });
    return 0;
  }
  Maximum top;
  for_experts(shape.experts, [&](int k, int) { top.value = fmaxf(top.value, held[k]); });
  const float maximum = warp_reduce(top).value;
  Sum sum;
  for_experts(shape.experts, [&](int k, int) {
    held[k] = expf(held[k] - maximum);
    sum.value += held[k];
  });
  const float total = warp_reduce(sum).value;
  for_experts(shape.experts, [&](int k, int) { held[k] = held[k] / total; });
  return maximum + logf(total);
}

template <class T>
__device__ __forceinline__ void load_logits(const T* logits, std::int64_t experts, float (&held)[kHeld]) {
  for_experts(experts, [&](int k, int e) { held[k] = to_f32(logits[e]); });
}

// Returns to all lanes the value that an expert's lane holds.
__device__ __forceinline__ float value_of(const float (&held)[kHeld], std::int64_t experts, int expert) {
  Maximum mine;
  for_experts(experts, [&](int k, int e) {
    if (e == expert) mine.value = held[k];
  });
  return warp_reduce(mine).value;
}

// Excludes the experts of all groups but the best from the choice. Lane g holds the score of group g.
__device__ __forceinline__ void limit_groups(const RouterShape& shape, int scored, float (&keys)[kHeld]) {
  const auto size = static_cast<int>(shape.experts / shape.groups);
  float left[kHeld];
  for_experts(shape.experts, [&](int k, int) { left[k] = keys[k]; });
  float score = -INFINITY;
  for (int g = 0; g < shape.groups; ++g) {
    float sum = 0;
    for (int i = 0; i < scored; ++i) {
      Best best;
      for_experts(shape.experts, [&](int k, int e) {
        if (e / size == g) best = Best::combine(best, {left[k], e});
      });
      best = warp_reduce(best);
      sum += best.key;
      for_experts(shape.experts, [&](int k, int e) {
        if (e == best.expert) left[k] = -INFINITY;
      });
    }
    if (lane_index() == g) score = sum;
  }
  unsigned chosen = 0;  // one bit per group
  for (int m = 0; m < shape.limit; ++m) {
    const Best best = warp_reduce(Best{score, lane_index()});
    chosen |= 1U << best.expert;
    if (lane_index() == best.expert) score = -INFINITY;
  }
  for_experts(shape.experts, [&](int k, int e) {
    if ((chosen >> (e / size) & 1U) == 0) keys[k] = -INFINITY;
  });
}

template <class T>
struct ForwardArgs {
  RouterShape shape;
  const T* logits;
  const float* bias;  // null if there is none
  int scored;         // experts of a group whose scores count for it; 0: all groups are eligible
  std::int32_t* choices;
  float* gates;
};

template <class T>
__global__ void __launch_bounds__(kBlockThreads) router_forward_kernel(ForwardArgs<T> args) {
  const RouterShape& shape = args.shape;
  for_warp_rows(shape.tokens, [&](std::int64_t token) {
    float keys[kHeld];
    float scores[kHeld];
    load_logits(args.logits + token * shape.experts, shape.experts, keys);
    for_experts(shape.experts, [&](int k, int) { scores[k] = keys[k]; });
    make_scores(shape, scores);
    if (args.bias != nullptr) {
      for_experts(shape.experts, [&](int k, int e) { keys[k] = scores[k] + args.bias[e]; });
    } else if (args.scored > 0) {
      for_experts(shape.experts, [&](int k, int) { keys[k] = scores[k]; });
    }
    for_experts(shape.experts, [&](int k, int) {
      if (isnan(keys[k])) keys[k] = -INFINITY;
    });
    if (args.scored > 0) limit_groups(shape, args.scored, keys);
    float chosen[kMostChoices];
    float sum = 0;
    for (int j = 0; j < shape.top_k; ++j) {
      Best best;
      for_experts(shape.experts, [&](int k, int e) { best = Best::combine(best, {keys[k], e}); });
      best = warp_reduce(best);
      for_experts(shape.experts, [&](int k, int e) {
        if (e == best.expert) keys[k] = -INFINITY;
      });
      chosen[j] = value_of(scores, shape.experts, best.expert);
      sum += chosen[j];
      if (lane_index() == 0) args.choices[token * shape.top_k + j] = best.expert;
    }
    if (lane_index() != 0) return;
    for (int j = 0; j < shape.top_k; ++j) {
      args.gates[token * shape.top_k + j] = chosen[j] / (shape.normalised ? sum : 1.0F) * shape.scale;
    }
  });
}

template <class T>
struct BackwardArgs {
  RouterShape shape;
  float balance_scale;
  float z_scale;
  const T* logits;
  const std::int32_t* choices;
  const float* d_gates;
  const std::int32_t* counts;  // null without a balance loss
  T* d_logits;
};

template <class T>
__global__ void __launch_bounds__(kBlockThreads) router_backward_kernel(BackwardArgs<T> args) {
  const RouterShape& shape = args.shape;
  for_warp_rows(shape.tokens, [&](std::int64_t token) {
    float scores[kHeld];
    float slopes[kHeld];
    load_logits(args.logits + token * shape.experts, shape.experts, scores);
    const float log_sum = make_scores(shape, scores);
    const std::int32_t* const choices = args.choices + token * shape.top_k;
    const float* const d_gates = args.d_gates + token * shape.top_k;
    float chosen[kMostChoices];
    float sum = 0;
    for (int j = 0; j < shape.top_k; ++j) {
      chosen[j] = value_of(scores, shape.experts, choices[j]);
      sum += chosen[j];
    }
    float mean = 0;
    for (int j = 0; j < shape.top_k; ++j) mean += d_gates[j] * (chosen[j] / sum);
    for_experts(shape.experts, [&](int k, int e) {
      slopes[k] = args.counts == nullptr ? 0.0F : args.balance_scale * static_cast<float>(args.counts[e]);
      for (int j = 0; j < shape.top_k; ++j) {
        if (choices[j] != e) continue;
        slopes[k] += (shape.normalised ? (d_gates[j] - mean) / sum : d_gates[j]) * shape.scale;
      }
    });
    T* const d_logits = args.d_logits + token * shape.experts;
    if (shape.scores == RouterScores::sigmoid) {
      for_experts(shape.experts,
                  [&](int k, int e) { d_logits[e] = from_f32<T>(slopes[k] * (scores[k] * (1.0F - scores[k]))); });
      return;
    }
    Sum dot;
    for_experts(shape.experts, [&](int k, int) { dot.value += scores[k] * slopes[k]; });
    const float across = warp_reduce(dot).value;
    const float z = args.z_scale * log_sum;
    for_experts(shape.experts, [&](int k, int e) { d_logits[e] = from_f32<T>(scores[k] * (slopes[k] - across + z)); });
  });
}

// Sums over tokens in two kernels: blocks add the scores of their tokens into a part each, one block adds the parts.
constexpr std::int64_t kMostParts = 64;

template <class T>
struct LoadsArgs {
  RouterShape shape;
  const T* logits;
  const std::int32_t* choices;
  std::int32_t* counts;  // zero on entry
  float* parts;          // [parts][experts + 1]; the last one is z
};

// A block takes every gridDim.x-th group of tokens in order, and a warp always takes the same token of a group. Sums of
// warps are added in the warps' order, so that the bits repeat.
template <class T>
__global__ void __launch_bounds__(kBlockThreads) router_loads_kernel(LoadsArgs<T> args) {
  __shared__ float of_warps[kWarpsPerBlock][kWarpLanes];
  __shared__ float z_of_warps[kWarpsPerBlock];
  const RouterShape& shape = args.shape;
  float sums[kHeld] = {};
  float z = 0;
  for_warp_rows(shape.tokens, [&](std::int64_t token) {
    float scores[kHeld];
    load_logits(args.logits + token * shape.experts, shape.experts, scores);
    const float log_sum = make_scores(shape, scores);
    for_experts(shape.experts, [&](int k, int) { sums[k] += scores[k]; });
    z += log_sum * log_sum;
    if (lane_index() < shape.top_k) atomicAdd(args.counts + args.choices[token * shape.top_k + lane_index()], 1);
  });
  float* const part = args.parts + blockIdx.x * (shape.experts + 1);
  for (int k = 0; k * kWarpLanes < shape.experts; ++k) {
    __syncthreads();
#pragma unroll
    for (int h = 0; h < kHeld; ++h) {
      if (h == k) of_warps[warp_index()][lane_index()] = sums[h];
    }
    if (lane_index() == 0) z_of_warps[warp_index()] = z;
    __syncthreads();
    const int e = k * kWarpLanes + lane_index();
    if (warp_index() != 0) continue;
    float sum = 0;
    float z_sum = 0;
    for (int w = 0; w < kWarpsPerBlock; ++w) {
      sum += of_warps[w][lane_index()];
      z_sum += z_of_warps[w];
    }
    if (e < shape.experts) part[e] = sum;
    if (e == 0) part[shape.experts] = z_sum;
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    add_loads_kernel(const float* parts, std::int64_t num_parts, std::int64_t experts, float* probabilities, float* z) {
  for (std::int64_t e = threadIdx.x; e <= experts; e += kBlockThreads) {
    float sum = 0;
    for (std::int64_t p = 0; p < num_parts; ++p) sum += parts[p * (experts + 1) + e];
    if (e < experts) {
      probabilities[e] = sum;
    } else {
      *z = sum;
    }
  }
}

}  // namespace

void run_cuda(const RouterForward& args, CudaContext& cuda) {
  with_cuda_activation_type(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const ForwardArgs<T> on_device{args.shape,
                                   args.logits.as<T>(),
                                   args.with_bias ? args.bias.as<float>() : nullptr,
                                   args.shape.is_limited() ? static_cast<int>(args.shape.scored_of_group()) : 0,
                                   args.choices.as<std::int32_t>(),
                                   args.gates.as<float>()};
    launch(cuda, "router_fwd", warps_for(args.shape.tokens, cuda), router_forward_kernel<T>, on_device);
  });
}

void run_cuda(const RouterBackward& args, CudaContext& cuda) {
  with_cuda_activation_type(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const BackwardArgs<T> on_device{args.shape,
                                    args.balance_scale,
                                    args.z_scale,
                                    args.logits.as<T>(),
                                    args.choices.as<std::int32_t>(),
                                    args.d_gates.as<float>(),
                                    args.balance_scale != 0 ? args.counts.as<std::int32_t>() : nullptr,
                                    args.d_logits.as<T>()};
    launch(cuda, "router_bwd", warps_for(args.shape.tokens, cuda), router_backward_kernel<T>, on_device);
  });
}

void run_cuda(const RouterLoads& args, CudaContext& cuda) {
  const RouterShape& shape = args.shape;
  const std::int64_t tiles = (shape.tokens + kWarpsPerBlock - 1) / kWarpsPerBlock;
  const std::int64_t parts = tiles < kMostParts ? tiles : kMostParts;
  auto* const memory = static_cast<float*>(cuda.workspace(size_bytes(core::DType::f32, parts * (shape.experts + 1))));
  core::check_cuda(cudaMemsetAsync(args.counts.data, 0, size_bytes(core::DType::i32, shape.experts), stream_of(cuda)),
                   "cudaMemsetAsync", cuda.place());
  with_cuda_activation_type(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const LoadsArgs<T> on_device{shape, args.logits.as<T>(), args.choices.as<std::int32_t>(),
                                 args.counts.as<std::int32_t>(), memory};
    launch(cuda, "router_loads", {.blocks = parts}, router_loads_kernel<T>, on_device);
  });
  launch(cuda, "router_loads", {.blocks = 1}, add_loads_kernel, memory, parts, shape.experts,
         args.probabilities.as<float>(), args.z.as<float>());
}

}  // namespace lockstep::kernels
