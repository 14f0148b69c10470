#include "core/error.h"
#include "kernels/base/cuda_loops.cuh"
#include "kernels/norm/norm.h"

namespace lockstep::kernels {
namespace {

template <class T>
struct ForwardRows {
  std::int64_t rows;
  std::int64_t columns;
  float epsilon;
  const T* x;
  const T* residual;  // null without a residual
  const T* gamma;
  const T* beta;  // LayerNorm only
  T* sum;         // with a residual only
  T* y;
  float* mean;  // LayerNorm only
  float* rstd;
};

// Loads x, or stores x + residual and returns it as it was rounded for storage.
template <class T, int kItems>
__device__ __forceinline__ Pack<T, kItems> normed_input(const ForwardRows<T>& args, std::int64_t at) {
  auto x = Pack<T, kItems>::load(args.x + at);
  if (args.residual == nullptr) return x;
  const auto residual = Pack<T, kItems>::load(args.residual + at);
#pragma unroll
  for (int i = 0; i < kItems; ++i) x.set(i, x[i] + residual[i]);
  x.store(args.sum + at);
  return x;
}

struct RowMoments {
  float mean;  // 0 for RMSNorm
  float rstd;
};

template <Norm kNorm, class T>
__device__ __forceinline__ void store_moments(const ForwardRows<T>& args, std::int64_t row, RowMoments moments) {
  if constexpr (kNorm == Norm::layer) args.mean[row] = moments.mean;
  args.rstd[row] = moments.rstd;
}

template <Norm kNorm, class T, int kItems>
__device__ __forceinline__ void store_normed(const ForwardRows<T>& args, Pack<T, kItems> pack, RowMoments moments,
                                             std::int64_t row, std::int64_t column) {
  const auto gamma = Pack<T, kItems>::load(args.gamma + column);
  if constexpr (kNorm == Norm::layer) {
    const auto beta = Pack<T, kItems>::load(args.beta + column);
#pragma unroll
    for (int i = 0; i < kItems; ++i) pack.set(i, (pack[i] - moments.mean) * moments.rstd * gamma[i] + beta[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kItems; ++i) pack.set(i, pack[i] * moments.rstd * gamma[i]);
  }
  pack.store(args.y + row * args.columns + column);
}

template <class T, int kItems>
__device__ __forceinline__ void add_values(Sum& sum, const Pack<T, kItems>& pack) {
#pragma unroll
  for (int i = 0; i < kItems; ++i) sum.value += pack[i];
}

template <class T, int kItems>
__device__ __forceinline__ void add_squares(Sum& sum, const Pack<T, kItems>& pack, float mean) {
#pragma unroll
  for (int i = 0; i < kItems; ++i) sum.value += (pack[i] - mean) * (pack[i] - mean);
}

// The row is read once; the variance is taken about the mean in a second pass over registers.
template <Norm kNorm, class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) forward_by_warps(ForwardRows<T> args) {
  wait_for_stream();
  const auto columns = static_cast<float>(args.columns);
  for_warp_rows(args.rows, [&](std::int64_t row) {
    Pack<T, kItems> held[kWarpPacks<kItems>];
    for_lane_packs<kItems>(args.columns,
                           [&](int k, int c) { held[k] = normed_input<T, kItems>(args, row * args.columns + c); });
    RowMoments moments{0, 0};
    if constexpr (kNorm == Norm::layer) {
      Sum sum;
      for_lane_packs<kItems>(args.columns, [&](int k, int) { add_values(sum, held[k]); });
      moments.mean = warp_reduce(sum).value / columns;
    }
    Sum squares;
    for_lane_packs<kItems>(args.columns, [&](int k, int) { add_squares(squares, held[k], moments.mean); });
    moments.rstd = __frsqrt_rn(warp_reduce(squares).value / columns + args.epsilon);
    if (lane_index() == 0) store_moments<kNorm>(args, row, moments);
    for_lane_packs<kItems>(args.columns, [&](int k, int c) { store_normed<kNorm>(args, held[k], moments, row, c); });
  });
}

// The same for a row in the stash. Without a stash, x, or the sum that this thread stored, is read again from memory.
template <Norm kNorm, class T, int kItems, bool kStashed>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) forward_by_blocks(ForwardRows<T> args) {
  wait_for_stream();
  using RowPack = Pack<T, kItems>;
  const auto columns = static_cast<float>(args.columns);
  const Stash<T, kStashed> stash;
  const RowSlice slice = row_slice<kItems>(args.columns);
  RowReduction<Sum> reduce;
  for_block_rows(args.rows, [&](std::int64_t row) {
    const std::int64_t begin = row * args.columns + slice.begin;
    const T* const again = (args.residual == nullptr ? args.x : args.sum) + begin;
    const auto load_again = [&](std::int64_t c) { return stash.template load_again<kItems>(again, c); };
    Sum sum;
    for_thread_packs<kItems>(
        slice.columns, [&](std::int64_t c) { return normed_input<T, kItems>(args, begin + c); },
        [&](std::int64_t c, const RowPack& pack) {
          stash.keep(c, pack);
          if constexpr (kNorm == Norm::layer) {
            add_values(sum, pack);
          } else {
            add_squares(sum, pack, 0);
          }
        });
    RowMoments moments{0, 0};
    if constexpr (kNorm == Norm::layer) {
      moments.mean = reduce(sum).value / columns;
      sum = {};
      for_thread_packs<kItems>(slice.columns, load_again,
                               [&](std::int64_t, const RowPack& pack) { add_squares(sum, pack, moments.mean); });
    }
    moments.rstd = __frsqrt_rn(reduce(sum).value / columns + args.epsilon);
    if (slice.begin == 0 && threadIdx.x == 0) store_moments<kNorm>(args, row, moments);
    for_thread_packs<kItems>(slice.columns, load_again, [&](std::int64_t c, const RowPack& pack) {
      store_normed<kNorm>(args, pack, moments, row, slice.begin + c);
    });
  });
}

template <Norm kNorm, class T, int kItems>
void forward(const NormForward& args, CudaContext& cuda) {
  const ForwardRows<T> rows{args.rows,
                            args.columns,
                            args.epsilon,
                            args.x.as<T>(),
                            args.with_residual ? args.residual.as<T>() : nullptr,
                            args.gamma.as<T>(),
                            args.beta.as<T>(),
                            args.sum.as<T>(),
                            args.y.as<T>(),
                            args.mean.as<float>(),
                            args.rstd.as<float>()};
  launch_rows(cuda, args.name().data(), rows, kItems, sizeof(T), forward_by_warps<kNorm, T, kItems>,
              forward_by_blocks<kNorm, T, kItems, true>, forward_by_blocks<kNorm, T, kItems, false>);
}

}  // namespace

void run_cuda(const NormForward& args, CudaContext& cuda) {
  LOCKSTEP_CHECK(args.part == NormPart::whole, "a norm in parts is only on the CPU");
  with_packs(args.x.dtype, args.columns,
             {args.x.data, args.residual.data, args.gamma.data, args.beta.data, args.sum.data, args.y.data},
             [&](auto zero, auto items) {
               with_norm(args.norm, [&](auto norm) {
                 forward<decltype(norm)::value, decltype(zero), decltype(items)::value>(args, cuda);
               });
             });
}

}  // namespace lockstep::kernels
