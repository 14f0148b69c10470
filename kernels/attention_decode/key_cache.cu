#include <algorithm>

#include "kernels/attention_decode/attention_decode.h"
#include "kernels/base/cuda_loops.cuh"

namespace lockstep::kernels {
namespace {

template <class T>
struct Appended {
  std::int64_t tokens;
  CacheShape cache;
  const T* k;
  const T* v;
  const std::int32_t* places;
  T* k_cache;
  T* v_cache;
};

// One warp per row: one head of one token.
template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) append_by_warps(Appended<T> args) {
  const std::int64_t heads = args.cache.kv_heads;
  const std::int64_t columns = args.cache.head_columns;
  const std::int64_t block = args.cache.block;
  for_warp_rows(args.tokens * heads, [&](std::int64_t row) {
    const std::int64_t place = args.places[row / heads];
    if (place < 0) return;
    const std::int64_t to = ((place / block * heads + row % heads) * block + place % block) * columns;
    for (std::int64_t c = std::int64_t{lane_index()} * kItems; c < columns; c += std::int64_t{kWarpLanes} * kItems) {
      Pack<T, kItems>::load(args.k + row * columns + c).store(args.k_cache + to + c);
      Pack<T, kItems>::load(args.v + row * columns + c).store(args.v_cache + to + c);
    }
  });
}

}  // namespace

void run_cuda(const CacheAppend& args, CudaContext& cuda) {
  with_packs(
      args.k.dtype, args.cache.head_columns, {args.k.data, args.v.data, args.k_cache.data, args.v_cache.data},
      [&](auto zero, auto items) {
        using T = decltype(zero);
        const Appended<T> appended{
            args.tokens,          args.cache,          args.k.as<T>(), args.v.as<T>(), args.places.as<std::int32_t>(),
            args.k_cache.as<T>(), args.v_cache.as<T>()};
        launch(cuda, "cache_append", warps_for(args.tokens * args.cache.kv_heads, cuda),
               append_by_warps<T, decltype(items)::value>, appended);
      });
}

}  // namespace lockstep::kernels
