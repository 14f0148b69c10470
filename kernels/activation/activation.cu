#include "kernels/activation/activation.h"
#include "kernels/activation/gelu_math.cuh"
#include "kernels/base/cuda_loops.cuh"

namespace lockstep::kernels {
namespace {

using gelu_math::gelu_for;
using gelu_math::gelu_slope_for;

template <class T>
struct GeluOperation {
  const T* x;
  T* y;

  template <int kItems>
  __device__ Pack<T, kItems> load(std::int64_t first) const {
    return Pack<T, kItems>::load(x + first);
  }
  template <int kItems>
  __device__ void store(std::int64_t first, Pack<T, kItems> pack) const {
#pragma unroll
    for (int i = 0; i < kItems; ++i) pack.set(i, gelu_for<T>(pack[i]));
    pack.store(y + first);
  }
};

template <class T>
__device__ __forceinline__ float gelu_gradient(float x, float dy) {
  return dy * gelu_slope_for<T>(x);
}

}  // namespace

void run_cuda(const GeluForward& args, CudaContext& cuda) {
  with_cuda_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int items = items_an_access(sizeof(T), 0, {args.x.data, args.y.data});
    run_elementwise<sizeof(T)>(cuda, "gelu_fwd", GeluOperation<T>{args.x.as<T>(), args.y.as<T>()}, args.count, items);
  });
}

void run_cuda(const GeluBackward& args, CudaContext& cuda) {
  with_cuda_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    run_of_two<T, gelu_gradient<T>>(cuda, "gelu_bwd", args.x, args.dy, args.dx, args.count);
  });
}

namespace {

// Gates below this give 0 times up, as -infinity does.
constexpr float kLowGate = -88.0F;

// 1 / (1 + e^-g) and its difference to 1, computed from e^-|g|, which is at most 1: neither loses digits.
struct Sigmoid {
  float s;
  float rest;
};
__device__ __forceinline__ Sigmoid sigmoid(float g) {
  const float e = expf(-fabsf(g));
  const float inverse = __fdividef(1.0F, 1.0F + e);
  return g < 0 ? Sigmoid{e * inverse, inverse} : Sigmoid{inverse, e * inverse};
}
__device__ __forceinline__ float at_least_low(float g) {  // NaN stays NaN
  return g < kLowGate ? kLowGate : g;
}
__device__ __forceinline__ float silu(float gate) {
  const float g = at_least_low(gate);
  return g * sigmoid(g).s;
}
__device__ __forceinline__ float silu_slope(float gate) {
  const float g = at_least_low(gate);
  const Sigmoid of_g = sigmoid(g);
  const float bent = of_g.rest == 0 ? 0.0F : g * of_g.rest;  // 0 at infinity
  return of_g.s * (1.0F + bent);
}

// Returns the position in [rows, 2, columns] of the gate of element i of a [rows, columns] array; its up is `columns`
// further.
__device__ __forceinline__ std::int64_t gate_of(std::int64_t i, std::int64_t columns) {
  return i + i / columns * columns;
}

template <class T>
struct SwigluOperation {
  std::int64_t columns;
  const T* x;
  T* y;

  template <int kItems>
  struct Inputs {
    Pack<T, kItems> gate;
    Pack<T, kItems> up;
  };
  template <int kItems>
  __device__ Inputs<kItems> load(std::int64_t first) const {
    const T* const gate = x + gate_of(first, columns);
    return {Pack<T, kItems>::load(gate), Pack<T, kItems>::load(gate + columns)};
  }
  template <int kItems>
  __device__ void store(std::int64_t first, const Inputs<kItems>& in) const {
    Pack<T, kItems> out;
#pragma unroll
    for (int i = 0; i < kItems; ++i) out.set(i, silu(in.gate[i]) * in.up[i]);
    out.store(y + first);
  }
};

template <class T>
struct SwigluGradientOperation {
  std::int64_t columns;
  const T* x;
  const T* dy;
  T* dx;

  template <int kItems>
  struct Inputs {
    Pack<T, kItems> gate;
    Pack<T, kItems> up;
    Pack<T, kItems> dy;
  };
  template <int kItems>
  __device__ Inputs<kItems> load(std::int64_t first) const {
    const T* const gate = x + gate_of(first, columns);
    return {Pack<T, kItems>::load(gate), Pack<T, kItems>::load(gate + columns), Pack<T, kItems>::load(dy + first)};
  }
  template <int kItems>
  __device__ void store(std::int64_t first, const Inputs<kItems>& in) const {
    Pack<T, kItems> d_gate;
    Pack<T, kItems> d_up;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      d_gate.set(i, in.dy[i] * in.up[i] * silu_slope(in.gate[i]));
      d_up.set(i, in.dy[i] * silu(in.gate[i]));
    }
    T* const to = dx + gate_of(first, columns);
    d_gate.store(to);
    d_up.store(to + columns);
  }
};

}  // namespace

void run_cuda(const SwigluForward& args, CudaContext& cuda) {
  with_cuda_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int items = items_an_access(sizeof(T), args.columns, {args.x.data, args.y.data});
    run_elementwise<sizeof(T)>(cuda, "swiglu_fwd", SwigluOperation<T>{args.columns, args.x.as<T>(), args.y.as<T>()},
                               args.rows * args.columns, items);
  });
}

void run_cuda(const SwigluBackward& args, CudaContext& cuda) {
  with_cuda_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int items = items_an_access(sizeof(T), args.columns, {args.x.data, args.dy.data, args.dx.data});
    run_elementwise<sizeof(T)>(
        cuda, "swiglu_bwd", SwigluGradientOperation<T>{args.columns, args.x.as<T>(), args.dy.as<T>(), args.dx.as<T>()},
        args.rows * args.columns, items);
  });
}

}  // namespace lockstep::kernels
