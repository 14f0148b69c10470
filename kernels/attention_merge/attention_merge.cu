#include <cmath>

#include "kernels/attention_merge/attention_merge.h"
#include "kernels/base/cuda_loops.cuh"

namespace lockstep::kernels {
namespace {

template <class T>
struct MergeRows {
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t queries;
  std::int64_t columns;
  std::int64_t lse_row;
  T* o;
  float* lse;
  const T* part_o;
  const float* part_lse;
};

// One warp per row: one head of one query. All lanes have loaded the row's log-sum-exp before one lane writes it,
// because the reduction waits for their loads.
template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) merge_by_warps(MergeRows<T> args) {
  for_warp_rows(args.rows, [&](std::int64_t row) {
    const std::int64_t query = row / args.heads % args.queries;
    const std::int64_t line = row / args.heads / args.queries * args.heads + row % args.heads;
    float* const at = args.lse + line * args.lse_row + query;
    const float lse = warp_reduce(Maximum{*at}).value;
    const float part_lse = args.part_lse[line * args.queries + query];
    if (part_lse == -INFINITY) return;
    const bool is_first = lse == -INFINITY;
    const bool second_is_larger = part_lse > lse;
    const float share = is_first ? 0.0F : expf(second_is_larger ? lse - part_lse : part_lse - lse);
    const float of_larger = 1 / (1 + share);
    const float of_smaller = share * of_larger;
    const float first = second_is_larger ? of_smaller : of_larger;
    const float second = second_is_larger ? of_larger : of_smaller;
    if (lane_index() == 0) *at = (second_is_larger ? part_lse : lse) + log1pf(share);
    T* const o = args.o + row * args.columns;
    const T* const part_o = args.part_o + row * args.columns;
    for (std::int64_t c = std::int64_t{lane_index()} * kItems; c < args.columns; c += kWarpLanes * kItems) {
      const auto part = Pack<T, kItems>::load(part_o + c);
      auto whole = Pack<T, kItems>::load(o + c);
#pragma unroll
      for (int i = 0; i < kItems; ++i) whole.set(i, is_first ? part[i] : first * whole[i] + second * part[i]);
      whole.store(o + c);
    }
  });
}

}  // namespace

void run_cuda(const AttentionMerge& args, CudaContext& cuda) {
  with_packs(args.o.dtype, args.head_columns, {args.o.data, args.part_o.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    const MergeRows<T> rows{args.rows(),          args.heads,          args.queries,
                            args.head_columns,    args.lse_row(),      args.o.as<T>(),
                            args.lse.as<float>(), args.part_o.as<T>(), args.part_lse.as<float>()};
    launch(cuda, "attention_merge", warps_for(rows.rows, cuda), merge_by_warps<T, decltype(items)::value>, rows);
  });
}

}  // namespace lockstep::kernels
