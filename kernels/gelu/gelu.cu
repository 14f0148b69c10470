#include "kernels/base/cuda_elementwise.cuh"
#include "kernels/gelu/gelu.h"
#include "kernels/gelu/gelu_math.cuh"

namespace lockstep::kernels {
namespace {

using gelu_math::gelu_for;
using gelu_math::gelu_slope_for;

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
    for (int i = 0; i < kItems; ++i) pack.set(i, gelu_for<T>(pack[i]));
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
    for (int i = 0; i < kItems; ++i) out.set(i, in.dy[i] * gelu_slope_for<T>(in.x[i]));
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
