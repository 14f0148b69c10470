#include "kernels/base/cuda_elementwise.cuh"
#include "kernels/residual/residual.h"

namespace lockstep::kernels {
namespace {

template <class T>
struct Add {
  const T* a;
  const T* b;
  T* y;

  template <int kItems>
  struct Inputs {
    Pack<T, kItems> a;
    Pack<T, kItems> b;
  };
  template <int kItems>
  __device__ Inputs<kItems> load(std::int64_t first) const {
    return {Pack<T, kItems>::load(a + first), Pack<T, kItems>::load(b + first)};
  }
  template <int kItems>
  __device__ void store(std::int64_t first, const Inputs<kItems>& in) const {
    Pack<T, kItems> out;
#pragma unroll
    for (int i = 0; i < kItems; ++i) out.set(i, in.a[i] + in.b[i]);
    out.store(y + first);
  }
};

}  // namespace

void run_cuda(const ResidualAdd& args, CudaContext& cuda) {
  with_cuda_activation_type(args.a.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int items = items_an_access(sizeof(T), 0, {args.a.data, args.b.data, args.y.data});
    run_elementwise<sizeof(T)>(cuda, "residual_add", Add<T>{args.a.as<T>(), args.b.as<T>(), args.y.as<T>()}, args.count,
                               items);
  });
}

}  // namespace lockstep::kernels
