#include <algorithm>

#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_loops.cuh"
#include "kernels/cast/cast.h"

namespace lockstep::kernels {
namespace {

template <class Visit>
void with_cuda_float_type(core::DType dtype, Visit&& visit) {
  if (dtype == core::DType::f8e4m3) return visit(CudaE4M3{});
  if (dtype == core::DType::f8e5m2) return visit(CudaE5M2{});
  with_cuda_activation_type(dtype, visit);
}

template <class From, class To>
struct Convert {
  const From* x;
  To* y;
  float scale;

  template <int kItems>
  __device__ Pack<From, kItems> load(std::int64_t first) const {
    return Pack<From, kItems>::load(x + first);
  }
  template <int kItems>
  __device__ void store(std::int64_t first, const Pack<From, kItems>& in) const {
    Pack<To, kItems> out;
#pragma unroll
    for (int i = 0; i < kItems; ++i) out.set(i, in[i] * scale);
    out.store(y + first);
  }
};

}  // namespace

void run_cuda(const Cast& args, CudaContext& cuda) {
  with_cuda_float_type(args.from, [&](auto from) {
    with_cuda_float_type(args.to, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      constexpr std::size_t kWidest = std::max(sizeof(From), sizeof(To));
      const int items = items_an_access(kWidest, 0, {args.x.data, args.y.data});
      run_elementwise<kWidest>(cuda, "cast", Convert<From, To>{args.x.as<From>(), args.y.as<To>(), args.scale},
                               args.count, items);
    });
  });
}

}  // namespace lockstep::kernels
