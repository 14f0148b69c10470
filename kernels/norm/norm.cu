#include "kernels/base/cuda_column_parts.cuh"
#include "kernels/base/cuda_rows.cuh"
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
  for_block_rows(args.rows, [&](std::int64_t row) {
    const T* const again = (args.residual == nullptr ? args.x : args.sum) + row * args.columns;
    const auto load_again = [&](std::int64_t c) { return stash.template load_again<kItems>(again, c); };
    Sum sum;
    for_thread_packs<kItems>(
        args.columns, [&](std::int64_t c) { return normed_input<T, kItems>(args, row * args.columns + c); },
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
      moments.mean = block_reduce(sum).value / columns;
      sum = {};
      for_thread_packs<kItems>(args.columns, load_again,
                               [&](std::int64_t, const RowPack& pack) { add_squares(sum, pack, moments.mean); });
    }
    moments.rstd = __frsqrt_rn(block_reduce(sum).value / columns + args.epsilon);
    if (threadIdx.x == 0) store_moments<kNorm>(args, row, moments);
    for_thread_packs<kItems>(args.columns, load_again, [&](std::int64_t c, const RowPack& pack) {
      store_normed<kNorm>(args, pack, moments, row, c);
    });
  });
}

template <class T>
struct BackwardRows {
  std::int64_t rows;
  std::int64_t columns;
  const T* dy;
  const T* dsum;  // null without a residual
  const T* x;
  const T* gamma;
  const float* mean;  // LayerNorm only
  const float* rstd;
  T* dx;
  float* parts;  // [parts][2][columns]: sums over some rows of dy * xhat and of dy
};

// With g = dy * gamma and xhat = (x - mean) * rstd, over a row of n elements:
//   dx = rstd * (g - sum(g) / n - xhat * sum(g * xhat) / n); RMSNorm has no sum(g) term.
template <Norm kNorm>
struct RowGradient {
  float mean = 0;
  float rstd = 0;
  float of_mean = 0;   // sum(g) / n
  float of_scale = 0;  // sum(g * xhat) / n

  template <class T>
  __device__ __forceinline__ RowGradient(const BackwardRows<T>& args, std::int64_t row) : rstd(args.rstd[row]) {
    if constexpr (kNorm == Norm::layer) mean = args.mean[row];
  }
  __device__ __forceinline__ float normed(float x) const { return (x - mean) * rstd; }
  template <class T, int kItems>
  __device__ __forceinline__ void add_terms(TwoSums& sums, const Pack<T, kItems>& dy, const Pack<T, kItems>& x,
                                            const Pack<T, kItems>& gamma) const {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const float g = dy[i] * gamma[i];
      sums.a += g;
      sums.b += g * normed(x[i]);
    }
  }
  __device__ __forceinline__ void finish(const TwoSums& sums, float columns) {
    if constexpr (kNorm == Norm::layer) of_mean = sums.a / columns;
    of_scale = sums.b / columns;
  }
  __device__ __forceinline__ float of(float dy, float x, float gamma) const {
    return rstd * (dy * gamma - of_mean - normed(x) * of_scale);
  }
};

template <class T, int kItems>
__device__ __forceinline__ Pack<T, kItems> load_dsum(const BackwardRows<T>& args, std::int64_t at) {
  if (args.dsum == nullptr) return {};
  return Pack<T, kItems>::load(args.dsum + at);
}

// Computes dx of one pack and adds the pack's contribution to dgamma and dbeta.
template <Norm kNorm, class T, int kItems>
__device__ __forceinline__ void store_gradient(const BackwardRows<T>& args, const RowGradient<kNorm>& gradient,
                                               const Pack<T, kItems>& dy, const Pack<T, kItems>& x,
                                               const Pack<T, kItems>& dsum, std::int64_t row, std::int64_t column,
                                               float (&dgamma)[kItems], float (&dbeta)[kItems]) {
  const std::int64_t at = row * args.columns + column;
  const auto gamma = Pack<T, kItems>::load(args.gamma + column);
  Pack<T, kItems> dx;
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    dx.set(i, gradient.of(dy[i], x[i], gamma[i]) + dsum[i]);
    dgamma[i] += dy[i] * gradient.normed(x[i]);
    if constexpr (kNorm == Norm::layer) dbeta[i] += dy[i];
  }
  dx.store(args.dx + at);
}

// One pass over dy and x. What a warp adds to gamma's and beta's gradients over all of its rows is kept in shared
// memory, each element owned by one lane: in registers it would leave room for only one block per multiprocessor, with
// too few bytes in flight. All loads of a row come before its first store: the compiler cannot know that a store does
// not change what is loaded after it, so the loads would wait for memory one after another.
template <Norm kNorm, class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads, 2) backward_by_warps(BackwardRows<T> args) {
  wait_for_stream();
  using RowPack = Pack<T, kItems>;
  using Floats = Pack<float, kItems>;
  float* const of_warp = dynamic_shared<float>() + 2 * args.columns * warp_index();
  for_lane_packs<kItems>(args.columns, [&](int, int c) {
    Floats{}.store(of_warp + c);
    Floats{}.store(of_warp + args.columns + c);
  });
  for_warp_rows(args.rows, [&](std::int64_t row) {
    RowPack dy[kWarpPacks<kItems>];
    RowPack x[kWarpPacks<kItems>];
    RowPack dsum[kWarpPacks<kItems>];
    for_lane_packs<kItems>(args.columns, [&](int k, int c) {
      const std::int64_t at = row * args.columns + c;
      dy[k] = RowPack::load(args.dy + at);
      x[k] = RowPack::load(args.x + at);
      dsum[k] = load_dsum<T, kItems>(args, at);
    });
    RowGradient<kNorm> gradient(args, row);
    TwoSums sums;
    for_lane_packs<kItems>(args.columns,
                           [&](int k, int c) { gradient.add_terms(sums, dy[k], x[k], RowPack::load(args.gamma + c)); });
    gradient.finish(warp_reduce(sums), static_cast<float>(args.columns));
    for_lane_packs<kItems>(args.columns, [&](int k, int c) {
      auto dgamma = Floats::load(of_warp + c);
      auto dbeta = Floats::load(of_warp + args.columns + c);
      store_gradient(args, gradient, dy[k], x[k], dsum[k], row, c, dgamma.items, dbeta.items);
      dgamma.store(of_warp + c);
      if constexpr (kNorm == Norm::layer) dbeta.store(of_warp + args.columns + c);
    });
  });
  __syncthreads();
  float* const part = args.parts + 2 * args.columns * blockIdx.x;
  for (std::int64_t c = threadIdx.x; c < 2 * args.columns; c += kBlockThreads) {
    float total = 0;
    for (int warp = 0; warp < kWarpsABlock; ++warp) total += dynamic_shared<float>()[2 * args.columns * warp + c];
    part[c] = total;
  }
}

// Long rows: a block reads its row twice, the second time from a cache. What it adds to gamma's and beta's gradients is
// kept in shared memory or, if that is too small, in the block's part in global memory; each element belongs to one
// thread.
template <Norm kNorm, class T, int kItems, bool kStashed>
__global__ void __launch_bounds__(kRowThreads) backward_by_blocks(BackwardRows<T> args) {
  wait_for_stream();
  using RowPack = Pack<T, kItems>;
  using Floats = Pack<float, kItems>;
  float* const part = args.parts + 2 * args.columns * blockIdx.x;
  float* const totals = kStashed ? dynamic_shared<float>() : part;
  const std::int64_t stride = std::int64_t{blockDim.x} * kItems;
  const std::int64_t begin = std::int64_t{threadIdx.x} * kItems;
  for (std::int64_t c = begin; c < args.columns; c += stride) {
    Floats{}.store(totals + c);
    Floats{}.store(totals + args.columns + c);
  }
  for_block_rows(args.rows, [&](std::int64_t row) {
    const T* const dy = args.dy + row * args.columns;
    const T* const x = args.x + row * args.columns;
    RowGradient<kNorm> gradient(args, row);
    TwoSums sums;
#pragma unroll 2
    for (std::int64_t c = begin; c < args.columns; c += stride) {
      gradient.add_terms(sums, RowPack::load(dy + c), RowPack::load(x + c), RowPack::load(args.gamma + c));
    }
    gradient.finish(block_reduce(sums), static_cast<float>(args.columns));
#pragma unroll 2
    for (std::int64_t c = begin; c < args.columns; c += stride) {
      auto dgamma = Floats::load(totals + c);
      auto dbeta = Floats::load(totals + args.columns + c);
      store_gradient(args, gradient, RowPack::load(dy + c), RowPack::load(x + c),
                     load_dsum<T, kItems>(args, row * args.columns + c), row, c, dgamma.items, dbeta.items);
      dgamma.store(totals + c);
      dbeta.store(totals + args.columns + c);
    }
  });
  if constexpr (kStashed) {
    for (std::int64_t c = begin; c < args.columns; c += stride) {
      Floats::load(totals + c).store(part + c);
      Floats::load(totals + args.columns + c).store(part + args.columns + c);
    }
  }
}

// Calls visit(std::integral_constant<Norm, norm>).
template <class Visit>
void with_norm(Norm norm, Visit&& visit) {
  if (norm == Norm::layer) return visit(std::integral_constant<Norm, Norm::layer>{});
  return visit(std::integral_constant<Norm, Norm::rms>{});
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
  const RowLayout layout = row_layout(args.rows, args.columns, kItems, sizeof(T), cuda.num_multiprocessors());
  auto* const kernel = layout.warp_a_row        ? forward_by_warps<kNorm, T, kItems>
                       : layout.stash_bytes > 0 ? forward_by_blocks<kNorm, T, kItems, true>
                                                : forward_by_blocks<kNorm, T, kItems, false>;
  launch_early(cuda, args.name().data(), shape_of(layout), kernel, rows);
}

template <Norm kNorm, class T, int kItems>
void backward(const NormBackward& args, CudaContext& cuda) {
  RowLayout layout = row_layout(args.rows, args.columns, kItems, 2 * sizeof(float), cuda.num_multiprocessors());
  const std::int64_t parts =
      column_sum_parts(args.rows, layout.warp_a_row ? kWarpsABlock : 1, cuda.num_multiprocessors());
  layout.blocks = parts;
  const std::size_t part_bytes = static_cast<std::size_t>(2 * args.columns) * sizeof(float);
  if (layout.warp_a_row) {
    layout.stash_bytes = kWarpsABlock * part_bytes;
  } else {
    layout.threads = row_threads(args.columns / kItems, 1);  // few blocks: many threads in each
  }
  auto* const memory = static_cast<float*>(cuda.workspace(static_cast<std::size_t>(parts) * part_bytes));
  const BackwardRows<T> rows{args.rows,
                             args.columns,
                             args.dy.as<T>(),
                             args.with_residual ? args.dsum.as<T>() : nullptr,
                             args.x.as<T>(),
                             args.gamma.as<T>(),
                             args.mean.as<float>(),
                             args.rstd.as<float>(),
                             args.dx.as<T>(),
                             memory};
  auto* const kernel = layout.warp_a_row        ? backward_by_warps<kNorm, T, kItems>
                       : layout.stash_bytes > 0 ? backward_by_blocks<kNorm, T, kItems, true>
                                                : backward_by_blocks<kNorm, T, kItems, false>;
  launch_early(cuda, args.name().data(), shape_of(layout), kernel, rows);
  const ColumnParts of_columns{
      memory, parts, 2 * args.columns, args.columns, {args.dgamma.as<float>(), args.dbeta.as<float>()}};
  queue_column_parts(cuda, args.name().data(), of_columns, kNorm == Norm::layer ? 2 : 1);
}

}  // namespace

void run_cuda(const NormForward& args, CudaContext& cuda) {
  with_cuda_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int items =
        items_an_access(sizeof(T), args.columns,
                        {args.x.data, args.residual.data, args.gamma.data, args.beta.data, args.sum.data, args.y.data});
    with_items<kAccessBytes / sizeof(T)>(items, [&](auto constant) {
      with_norm(args.norm,
                [&](auto norm) { forward<decltype(norm)::value, T, decltype(constant)::value>(args, cuda); });
    });
  });
}

void run_cuda(const NormBackward& args, CudaContext& cuda) {
  with_cuda_activation_type(args.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int items = items_an_access(sizeof(T), args.columns,
                                      {args.dy.data, args.dsum.data, args.x.data, args.gamma.data, args.dx.data});
    with_items<kAccessBytes / sizeof(T)>(items, [&](auto constant) {
      with_norm(args.norm,
                [&](auto norm) { backward<decltype(norm)::value, T, decltype(constant)::value>(args, cuda); });
    });
  });
}

}  // namespace lockstep::kernels
