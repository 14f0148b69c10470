#include "core/error.h"
#include "kernels/base/cuda_column_parts.cuh"
#include "kernels/base/cuda_loops.cuh"
#include "kernels/norm/norm.h"

namespace lockstep::kernels {
namespace {

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
  float* parts = nullptr;       // [parts][2][columns]: sums over some rows of dy * xhat and of dy
  int rows_ahead = 0;           // rows that teams prefetch
  bool sums_in_shared = false;  // for backward_by_blocks: column sums are kept in shared memory
};

// With g = dy * gamma and xhat = (x - mean) * rstd, over a row of n elements:
//   dx = rstd * (g - sum(g) / n - xhat * sum(g * xhat) / n); RMSNorm has no sum(g) term.
// Written as rstd * g + slope * (x - mean) + offset it takes two multiply-adds.
template <Norm kNorm>
struct RowGradient {
  float mean = 0;
  float rstd = 0;
  float slope = 0;
  float offset = 0;

  template <class T>
  __device__ __forceinline__ RowGradient(const BackwardRows<T>& args, std::int64_t row) : rstd(args.rstd[row]) {
    if constexpr (kNorm == Norm::layer) mean = args.mean[row];
  }
  __device__ __forceinline__ float centred(float x) const { return kNorm == Norm::layer ? x - mean : x; }
  __device__ __forceinline__ float normed(float x) const { return centred(x) * rstd; }
  __device__ __forceinline__ void add_term(TwoSums& sums, float g, float xhat) const {
    if constexpr (kNorm == Norm::layer) sums.a += g;
    sums.b += g * xhat;
  }
  template <class T, int kItems>
  __device__ __forceinline__ void add_terms(TwoSums& sums, const Pack<T, kItems>& dy, const Pack<T, kItems>& x,
                                            const Pack<T, kItems>& gamma) const {
#pragma unroll
    for (int i = 0; i < kItems; ++i) add_term(sums, dy[i] * gamma[i], normed(x[i]));
  }
  __device__ __forceinline__ void finish(const TwoSums& sums, float columns) {
    if constexpr (kNorm == Norm::layer) offset = -rstd * (sums.a / columns);
    slope = -rstd * rstd * (sums.b / columns);
  }
  __device__ __forceinline__ float of(float dy, float x, float gamma) const {
    return fmaf(centred(x), slope, fmaf(dy * gamma, rstd, offset));
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

// The threads that compute a row and keep sums of its columns: a warp, or a block, which may share the row with others
// of its cluster.
struct WarpTeam {
  static constexpr int kItems = kWarpItems;  // elements of a row per thread
  static constexpr int kTeams = kWarpsPerBlock;
  static constexpr int kMostThreads = kBlockThreads;
  static constexpr int kBlocks = 2;
  static constexpr bool kHoldsGamma = false;  // registers are full: gamma is loaded for each row, from a cache
  __device__ __forceinline__ static int team() { return warp_index(); }
  __device__ __forceinline__ static int member() { return lane_index(); }
  __device__ __forceinline__ static int members() { return kWarpLanes; }
  template <class V>
  struct Reduction {
    __device__ __forceinline__ V operator()(V value) const { return warp_reduce(value); }
  };
};
struct BlockTeam {
  static constexpr int kItems = kBlockItems;
  static constexpr int kTeams = 1;
  static constexpr int kMostThreads = kRowThreads;
  static constexpr int kBlocks = 1;
  static constexpr bool kHoldsGamma = true;
  __device__ __forceinline__ static int team() { return 0; }
  __device__ __forceinline__ static int member() { return static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ static int members() { return static_cast<int>(blockDim.x); }
  template <class V>
  using Reduction = RowReduction<V>;
};

// The rows that a team prefetches into shared memory. Each thread copies the packs that it will read itself, so that it
// needs no barrier and waits for its own copies only. A row's operands lie in this order: dy, x, and dsum if given.
template <class T, int kItems, class Team>
struct RowsAhead {
  static constexpr int kPacks = Team::kItems / kItems;
  static constexpr int kPackBytes = kItems * static_cast<int>(sizeof(T));

  const BackwardRows<T>& args;
  RowSlice slice;
  T* first;  // the team's part of shared memory
  int row_elems;
  int place = 0;  // slot of the current row

  __device__ __forceinline__ RowsAhead(const BackwardRows<T>& rows, RowSlice part)
      : args(rows), slice(part), row_elems((rows.dsum == nullptr ? 2 : 3) * part.columns) {
    first = dynamic_shared<T>() + Team::team() * (args.rows_ahead + 1) * row_elems;
  }
  // Calls visit(k, first column) for the packs of this thread.
  template <class Visit>
  __device__ __forceinline__ void for_packs_of_thread(Visit&& visit) const {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int column = (k * Team::members() + Team::member()) * kItems;
      if (column < slice.columns) visit(k, column);
    }
  }
  __device__ __forceinline__ static void copy(T* to, const T* from) {
    if constexpr (kPackBytes >= 4) {
      copy_async<kPackBytes>(to, from);
    } else {
      *to = *from;
    }
  }
  // Starts to copy a row, if it exists, into the slot that becomes the current one `ahead` rows later.
  __device__ __forceinline__ void fetch(std::int64_t row, int ahead) const {
    if (row < args.rows) {
      const std::int64_t at = row * args.columns + slice.begin;
      const int end = args.rows_ahead + 1;
      T* const to = first + (place + ahead < end ? place + ahead : place + ahead - end) * row_elems;
      for_packs_of_thread([&](int, int c) {
        copy(to + c, args.dy + at + c);
        copy(to + slice.columns + c, args.x + at + c);
        if (args.dsum != nullptr) copy(to + 2 * slice.columns + c, args.dsum + at + c);
      });
    }
    end_copy_group();
  }
  __device__ __forceinline__ void wait() const {
    if (args.rows_ahead == 2) return wait_for_copies<2>();
    wait_for_copies<1>();
  }
  __device__ __forceinline__ const T* row() const {
    return first + place * row_elems;
  }
  __device__ __forceinline__ void go_on() {
    place = place == args.rows_ahead ? 0 : place + 1;
  }
};

// Adds up the column sums of a block's teams, in the teams' order, and stores them into the block's part. `sums`: those
// of this thread.
template <class Team, class T, int kItems, int kPacks>
__device__ __forceinline__ void store_column_sums(const RowsAhead<T, kItems, Team>& rows,
                                                  const float (&sums)[kPacks][kItems], float* part) {
  float* const total = dynamic_shared<float>();
  for (int team = 0; team < Team::kTeams; ++team) {
    if constexpr (Team::kTeams > 1) __syncthreads();
    if (team != Team::team()) continue;
    rows.for_packs_of_thread([&](int k, int c) {
      Pack<float, kItems> pack{};
      if (team > 0) pack = Pack<float, kItems>::load(total + c);
#pragma unroll
      for (int i = 0; i < kItems; ++i) pack.items[i] += sums[k][i];
      pack.store((team == Team::kTeams - 1 ? part : total) + c);
    });
  }
}

// Persistent teams: while a team computes a row, the next ones are in flight, and what the rows add to the gradients of
// gamma and beta stays in registers; each column belongs to one thread of the team.
template <Norm kNorm, class T, int kItems, class Team>
__global__ void __launch_bounds__(Team::kMostThreads, Team::kBlocks) backward_by_teams(BackwardRows<T> args) {
  wait_for_stream();
  using RowPack = Pack<T, kItems>;
  RowsAhead<T, kItems, Team> rows(args, row_slice<kItems>(args.columns));
  constexpr int kPacks = RowsAhead<T, kItems, Team>::kPacks;
  const int columns = rows.slice.columns;
  const unsigned sharers = cluster_blocks();
  const unsigned part = blockIdx.x / sharers;
  const std::int64_t stride = std::int64_t{gridDim.x / sharers} * Team::kTeams;
  const std::int64_t first = std::int64_t{part} * Team::kTeams + Team::team();
  for (int ahead = 0; ahead < args.rows_ahead; ++ahead) rows.fetch(first + ahead * stride, ahead);
  float gamma[Team::kHoldsGamma ? kPacks : 1][kItems] = {};
  float dgamma[kPacks][kItems] = {};
  float dbeta[kPacks][kItems] = {};
  const T* const gamma_row = args.gamma + rows.slice.begin;
  if constexpr (Team::kHoldsGamma) {
    rows.for_packs_of_thread([&](int k, int c) { RowPack::load(gamma_row + c).widen(gamma[k]); });
  }
  const auto load_gamma = [&](int k, int c) {
    if constexpr (!Team::kHoldsGamma) RowPack::load(gamma_row + c).widen(gamma[0]);
    return Team::kHoldsGamma ? k : 0;
  };
  typename Team::template Reduction<TwoSums> reduce;
  RowGradient<kNorm> next(args, min(first, args.rows - 1));
  for (std::int64_t row = first; row < args.rows; row += stride) {
    RowGradient<kNorm> gradient = next;
    next = RowGradient<kNorm>(args, min(row + stride, args.rows - 1));
    rows.fetch(row + args.rows_ahead * stride, args.rows_ahead);
    rows.wait();
    const T* const held = rows.row();
    TwoSums sums;
    rows.for_packs_of_thread([&](int k, int c) {
      const auto dy = RowPack::load(held + c);
      const auto x = RowPack::load(held + columns + c);
      const auto& scale = gamma[load_gamma(k, c)];
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const float xhat = gradient.normed(x[i]);
        gradient.add_term(sums, dy[i] * scale[i], xhat);
        dgamma[k][i] += dy[i] * xhat;
        if constexpr (kNorm == Norm::layer) dbeta[k][i] += dy[i];
      }
    });
    gradient.finish(reduce(sums), static_cast<float>(args.columns));
    T* const dx_row = args.dx + row * args.columns + rows.slice.begin;
    rows.for_packs_of_thread([&](int k, int c) {
      const auto dy = RowPack::load(held + c);
      const auto x = RowPack::load(held + columns + c);
      const auto& scale = gamma[load_gamma(k, c)];
      float of_x[kItems];
#pragma unroll
      for (int i = 0; i < kItems; ++i) of_x[i] = gradient.of(dy[i], x[i], scale[i]);
      if (args.dsum != nullptr) {
        const auto dsum = RowPack::load(held + 2 * columns + c);
#pragma unroll
        for (int i = 0; i < kItems; ++i) of_x[i] += dsum[i];
      }
      RowPack dx;
#pragma unroll
      for (int i = 0; i < kItems; ++i) dx.set(i, of_x[i]);
      dx.store(dx_row + c);
    });
    rows.go_on();
  }
  float* const of_part = args.parts + 2 * args.columns * part + rows.slice.begin;
  store_column_sums<Team>(rows, dgamma, of_part);
  if constexpr (Team::kTeams > 1) __syncthreads();
  if constexpr (kNorm == Norm::layer) store_column_sums<Team>(rows, dbeta, of_part + args.columns);
}

// For rows that are too long for teams, on devices without clusters: a block reads its row twice, the second time from
// a cache. What it adds to gamma's and beta's gradients is kept in shared memory or, if that is too small, in the
// block's part in global memory; each element belongs to one thread.
template <Norm kNorm, class T, int kItems>
__global__ void __launch_bounds__(kRowThreads) backward_by_blocks(BackwardRows<T> args) {
  wait_for_stream();
  using RowPack = Pack<T, kItems>;
  using Floats = Pack<float, kItems>;
  float* const part = args.parts + 2 * args.columns * blockIdx.x;
  float* const totals = args.sums_in_shared ? dynamic_shared<float>() : part;
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
  if (args.sums_in_shared) {
    for (std::int64_t c = begin; c < args.columns; c += stride) {
      Floats::load(totals + c).store(part + c);
      Floats::load(totals + args.columns + c).store(part + args.columns + c);
    }
  }
}

// Sets the launch of backward_by_blocks.
template <Norm kNorm, class T, int kItems>
LaunchShape set_long_rows(BackwardRows<T>& rows, int num_multiprocessors) {
  const RowLayout layout = block_row_layout(rows.rows, rows.columns, kItems, 2 * sizeof(float), num_multiprocessors);
  rows.sums_in_shared = layout.stash_bytes > 0;
  return {.blocks = column_sum_parts(rows.rows, 1, num_multiprocessors),
          .threads = row_threads(rows.columns / kItems, 1),  // few blocks: many threads in each
          .shared_bytes = layout.stash_bytes};
}

template <Norm kNorm, class T, int kItems>
void backward(const NormBackward& args, CudaContext& cuda) {
  BackwardRows<T> rows{.rows = args.rows,
                       .columns = args.columns,
                       .dy = args.dy.as<T>(),
                       .dsum = args.with_residual ? args.dsum.as<T>() : nullptr,
                       .x = args.x.as<T>(),
                       .gamma = args.gamma.as<T>(),
                       .mean = args.mean.as<float>(),
                       .rstd = args.rstd.as<float>(),
                       .dx = args.dx.as<T>()};
  const AheadLayout layout = ahead_layout(args.rows, args.columns, kItems, (args.with_residual ? 3 : 2) * sizeof(T),
                                          cuda.num_multiprocessors(), cuda.most_cluster_blocks());
  rows.rows_ahead = layout.rows_ahead;
  LaunchShape shape{.blocks = layout.blocks,
                    .threads = layout.threads,
                    .shared_bytes = layout.shared_bytes,
                    .cluster = layout.cluster};
  if (rows.rows_ahead == 0) shape = set_long_rows<kNorm, T, kItems>(rows, cuda.num_multiprocessors());
  const std::int64_t parts = shape.blocks / shape.cluster;
  rows.parts = static_cast<float*>(cuda.workspace(static_cast<std::size_t>(parts * 2 * args.columns) * sizeof(float)));
  auto* kernel =
      rows.rows_ahead == 0 ? backward_by_blocks<kNorm, T, kItems> : backward_by_teams<kNorm, T, kItems, BlockTeam>;
  if constexpr (kItems > 1) {
    if (layout.warp_per_row) kernel = backward_by_teams<kNorm, T, kItems, WarpTeam>;
  }
  launch_early(cuda, args.name().data(), shape, kernel, rows);
  const ColumnParts of_columns{
      rows.parts, parts, 2 * args.columns, args.columns, {args.dgamma.as<float>(), args.dbeta.as<float>()}};
  queue_column_parts(cuda, args.name().data(), of_columns, kNorm == Norm::layer ? 2 : 1);
}

}  // namespace

void run_cuda(const NormBackward& args, CudaContext& cuda) {
  LOCKSTEP_CHECK(args.part == NormPart::whole, "a norm in parts is only on the CPU");
  with_packs(args.dy.dtype, args.columns, {args.dy.data, args.dsum.data, args.x.data, args.gamma.data, args.dx.data},
             [&](auto zero, auto items) {
               with_norm(args.norm, [&](auto norm) {
                 backward<decltype(norm)::value, decltype(zero), decltype(items)::value>(args, cuda);
               });
             });
}

}  // namespace lockstep::kernels
