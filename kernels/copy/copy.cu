#include <algorithm>

#include "kernels/base/cuda_loops.cuh"
#include "kernels/copy/copy.h"

namespace lockstep::kernels {
namespace {

template <class T>
struct Places {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t from_row;
  std::int64_t to_row;
  const T* from;
  T* to;
};

template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) copy_by_warps(Places<T> args) {
  for_warp_rows(args.rows, [&](std::int64_t row) {
    const T* const from = args.from + row * args.from_row;
    T* const to = args.to + row * args.to_row;
    for_packs<4>(
        std::int64_t{lane_index()} * kItems, std::int64_t{kWarpLanes} * kItems, args.columns,
        [&](std::int64_t c) { return Pack<T, kItems>::load(from + c); },
        [&](std::int64_t c, const Pack<T, kItems>& pack) { pack.store(to + c); });
  });
}

}  // namespace

void run_cuda(const CopyRows& args, CudaContext& cuda) {
  with_cuda_activation_type(args.from.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Places<T> places{args.rows, args.columns, args.from_row(), args.to_row(), args.from.as<T>(), args.to.as<T>()};
    // A pack starts at an address that an access may have: in the first row, and by the strides in all others.
    const auto items_of = [&](std::int64_t elems) {
      return items_an_access(sizeof(T), elems, {args.from.data, args.to.data});
    };
    const int items = std::min({items_of(args.columns), items_of(args.from_row()), items_of(args.to_row())});
    with_items<static_cast<int>(kAccessBytes / sizeof(T))>(items, [&](auto constant) {
      constexpr int kItems = decltype(constant)::value;
      launch(cuda, "copy_rows", warps_for(args.rows, cuda), copy_by_warps<T, kItems>, places);
    });
  });
}

}  // namespace lockstep::kernels
