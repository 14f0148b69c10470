#include "kernels/base/cuda_elementwise.cuh"
#include "kernels/gelu/gelu.h"

namespace lockstep::kernels {
namespace {

constexpr float kScale = 0.7978845608028654F;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;
// From here on GELU is x or 0 in f32; beyond, its terms would overflow.
constexpr float kFar = 16.0F;

__device__ __forceinline__ float clamped(float x) {  // NaN stays NaN, as it does not in fminf
  return x < -kFar ? -kFar : (x > kFar ? kFar : x);
}

// (1 + tanh u) / 2 is the logistic function of 2u. Written with exp(-2|u|), which is at most 1, neither it nor its
// complement loses digits.
struct Logistic {
  float value;
  float slope;  // value * (1 - value)
};
__device__ __forceinline__ Logistic logistic(float z) {
  const float e = expf(-fabsf(z));
  const float inverse = __fdividef(1.0F, 1.0F + e);
  return {z < 0 ? e * inverse : inverse, e * inverse * inverse};
}

__device__ __forceinline__ float gelu(float x) {
  const float c = clamped(x);
  const float value = logistic(2 * kScale * c * (1 + kCubic * c * c)).value;
  return (x < -kFar ? c : x) * value;  // -infinity gives -0
}

__device__ __forceinline__ float gelu_slope(float x) {
  const float c = clamped(x);
  const float cubic = kCubic * c * c;
  const Logistic s = logistic(2 * kScale * c * (1 + cubic));
  return s.value + 2 * c * s.slope * kScale * (1 + 3 * cubic);
}

template <class T>
struct Forward {
  const T* x;
  T* y;

  template <int kItems>
  __device__ Pack<T, kItems> load(std::int64_t first) const {
    return Pack<T, kItems>::load(x + first);
  }
  template <int kItems>
  __device__ void store(std::int64_t first, Pack<T, kItems> pack) const {
#pragma unroll
    for (int i = 0; i < kItems; ++i) pack.set(i, gelu(pack[i]));
    pack.store(y + first);
  }
};

template <class T>
struct Backward {
  const T* x;
  const T* dy;
  T* dx;

  template <int kItems>
  struct Inputs {
    Pack<T, kItems> x;
    Pack<T, kItems> dy;
  };
  template <int kItems>
  __device__ Inputs<kItems> load(std::int64_t first) const {
    return {Pack<T, kItems>::load(x + first), Pack<T, kItems>::load(dy + first)};
  }
  template <int kItems>
  __device__ void store(std::int64_t first, const Inputs<kItems>& in) const {
    Pack<T, kItems> out;
#pragma unroll
    for (int i = 0; i < kItems; ++i) out.set(i, in.dy[i] * gelu_slope(in.x[i]));
    out.store(dx + first);
  }
};

}  // namespace

void run_cuda(const GeluForward& args, CudaContext& cuda) {
  with_cuda_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int items = items_an_access(sizeof(T), 0, {args.x.data, args.y.data});
    run_elementwise<sizeof(T)>(cuda, "gelu_fwd", Forward<T>{args.x.as<T>(), args.y.as<T>()}, args.count, items);
  });
}

void run_cuda(const GeluBackward& args, CudaContext& cuda) {
  with_cuda_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int items = items_an_access(sizeof(T), 0, {args.x.data, args.dy.data, args.dx.data});
    run_elementwise<sizeof(T)>(cuda, "gelu_bwd", Backward<T>{args.x.as<T>(), args.dy.as<T>(), args.dx.as<T>()},
                               args.count, items);
  });
}

}  // namespace lockstep::kernels
