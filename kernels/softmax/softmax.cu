#include "kernels/base/cuda_loops.cuh"
#include "kernels/softmax/softmax.h"

namespace lockstep::kernels {
namespace {

template <class T>
struct ForwardRows {
  std::int64_t rows;
  std::int64_t columns;
  const T* x;
  T* y;
};

template <class T>
struct BackwardRows {
  std::int64_t rows;
  std::int64_t columns;
  const T* y;
  const T* dy;
  T* dx;
};

// One warp keeps a row in registers: the row is read once, and the exponentials are kept.
template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) forward_by_warps(ForwardRows<T> args) {
  wait_for_stream();
  for_warp_rows(args.rows, [&](std::int64_t row) {
    const T* x = args.x + row * args.columns;
    T* y = args.y + row * args.columns;
    float held[kWarpPacks<kItems>][kItems];
    Maximum top;
    for_lane_packs<kItems>(args.columns, [&](int k, int first) {
      Pack<T, kItems>::load(x + first).widen(held[k]);
#pragma unroll
      for (int i = 0; i < kItems; ++i) top.value = fmaxf(top.value, held[k][i]);
    });
    const float shift = ExpSum::shift_of(warp_reduce(top).value);
    Sum sum;
    for_lane_packs<kItems>(args.columns, [&](int k, int) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        held[k][i] = ExpSum::power_of(held[k][i], shift);
        sum.value += held[k][i];
      }
    });
    const float inverse = 1.0F / warp_reduce(sum).value;
    for_lane_packs<kItems>(args.columns, [&](int k, int first) {
      Pack<T, kItems> out;
#pragma unroll
      for (int i = 0; i < kItems; ++i) out.set(i, held[k][i] * inverse);
      out.store(y + first);
    });
  });
}

// One block, or a cluster, computes a row: maximum and sum in one pass over memory, the quotient in a second pass over
// the stash.
template <class T, int kItems, bool kStashed>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) forward_by_blocks(ForwardRows<T> args) {
  wait_for_stream();
  using RowPack = Pack<T, kItems>;
  const Stash<T, kStashed> stash;
  const RowSlice slice = row_slice<kItems>(args.columns);
  RowReduction<ExpSum> reduce;
  for_block_rows(args.rows, [&](std::int64_t row) {
    const T* x = args.x + row * args.columns + slice.begin;
    T* y = args.y + row * args.columns + slice.begin;
    ExpSum mine;
    for_thread_packs<kItems>(
        slice.columns, [&](std::int64_t first) { return RowPack::load(x + first); },
        [&](std::int64_t first, const RowPack& pack) {
          stash.keep(first, pack);
          mine.add(pack);
        });
    const ExpSum all = reduce(mine);
    const float shift = ExpSum::shift_of(all.maximum);
    const float inverse = 1.0F / all.sum;
    for_thread_packs<kItems>(
        slice.columns, [&](std::int64_t first) { return stash.template load_again<kItems>(x, first); },
        [&](std::int64_t first, RowPack pack) {
#pragma unroll
          for (int i = 0; i < kItems; ++i) pack.set(i, ExpSum::power_of(pack[i], shift) * inverse);
          pack.store(y + first);
        });
  });
}

template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) backward_by_warps(BackwardRows<T> args) {
  wait_for_stream();
  for_warp_rows(args.rows, [&](std::int64_t row) {
    const std::int64_t begin = row * args.columns;
    Pack<T, kItems> y[kWarpPacks<kItems>];
    Pack<T, kItems> dy[kWarpPacks<kItems>];
    Sum mine;
    for_lane_packs<kItems>(args.columns, [&](int k, int first) {
      y[k] = Pack<T, kItems>::load(args.y + begin + first);
      dy[k] = Pack<T, kItems>::load(args.dy + begin + first);
    });
    for_lane_packs<kItems>(args.columns, [&](int k, int) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) mine.value += y[k][i] * dy[k][i];
    });
    const float dot = warp_reduce(mine).value;
    for_lane_packs<kItems>(args.columns, [&](int k, int first) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) dy[k].set(i, y[k][i] * (dy[k][i] - dot));
      dy[k].store(args.dx + begin + first);
    });
  });
}

template <class T, int kItems>
struct TwoPacks {
  Pack<T, kItems> y;
  Pack<T, kItems> dy;
};

template <class T, int kItems, bool kStashed>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) backward_by_blocks(BackwardRows<T> args) {
  wait_for_stream();
  using Packs = TwoPacks<T, kItems>;
  const RowSlice slice = row_slice<kItems>(args.columns);
  const Stash<T, kStashed> stash_y(0);
  const Stash<T, kStashed> stash_dy(slice.columns);
  RowReduction<Sum> reduce;
  for_block_rows(args.rows, [&](std::int64_t row) {
    const std::int64_t begin = row * args.columns + slice.begin;
    const T* y = args.y + begin;
    const T* dy = args.dy + begin;
    T* dx = args.dx + begin;
    Sum mine;
    for_thread_packs<kItems, 2>(
        slice.columns,
        [&](std::int64_t first) {
          return Packs{Pack<T, kItems>::load(y + first), Pack<T, kItems>::load(dy + first)};
        },
        [&](std::int64_t first, const Packs& in) {
          stash_y.keep(first, in.y);
          stash_dy.keep(first, in.dy);
#pragma unroll
          for (int i = 0; i < kItems; ++i) mine.value += in.y[i] * in.dy[i];
        });
    const float dot = reduce(mine).value;
    for_thread_packs<kItems, 2>(
        slice.columns,
        [&](std::int64_t first) {
          return Packs{stash_y.template load_again<kItems>(y, first), stash_dy.template load_again<kItems>(dy, first)};
        },
        [&](std::int64_t first, Packs in) {
#pragma unroll
          for (int i = 0; i < kItems; ++i) in.dy.set(i, in.y[i] * (in.dy[i] - dot));
          in.dy.store(dx + first);
        });
  });
}

}  // namespace

void run_cuda(const SoftmaxForward& args, CudaContext& cuda) {
  with_packs(args.x.dtype, args.columns, {args.x.data, args.y.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    constexpr int kItems = decltype(items)::value;
    const ForwardRows<T> rows{args.rows, args.columns, args.x.as<T>(), args.y.as<T>()};
    launch_rows(cuda, "softmax_fwd", rows, kItems, sizeof(T), forward_by_warps<T, kItems>,
                forward_by_blocks<T, kItems, true>, forward_by_blocks<T, kItems, false>);
  });
}

void run_cuda(const SoftmaxBackward& args, CudaContext& cuda) {
  with_packs(args.y.dtype, args.columns, {args.y.data, args.dy.data, args.dx.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    constexpr int kItems = decltype(items)::value;
    const BackwardRows<T> rows{args.rows, args.columns, args.y.as<T>(), args.dy.as<T>(), args.dx.as<T>()};
    launch_rows(cuda, "softmax_bwd", rows, kItems, 2 * sizeof(T), backward_by_warps<T, kItems>,
                backward_by_blocks<T, kItems, true>, backward_by_blocks<T, kItems, false>);
  });
}

}  // namespace lockstep::kernels
