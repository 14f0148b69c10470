#include "kernels/base/cuda_rows.cuh"
#include "kernels/cross_entropy/cross_entropy.h"

namespace lockstep::kernels {
namespace {

template <class T>
struct Whole {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t valid_columns;
  float scale;
  const std::int32_t* targets;
  T* logits;
  float* losses;
};

template <class T>
struct Stats {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t valid_columns;
  std::int64_t first_id;
  const std::int32_t* targets;
  const T* logits;
  float* stats;  // [rows, 3]
};

template <class T>
struct Finish {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t valid_columns;
  std::int64_t first_id;
  std::int64_t shards;
  float scale;
  const std::int32_t* targets;
  const float* stats;  // [shards, rows, 3]
  T* logits;
  float* losses;
};

__device__ __forceinline__ float loss_of(const ExpSum& row, float target_logit) {
  return logf(row.sum) + (row.maximum - target_logit);
}

// scale * (softmax - one at the target) of a pack that begins at column `first`; 0 at and above valid_columns.
struct Gradient {
  float maximum;
  float inverse_sum;
  float scale;
  std::int64_t valid_columns;
  std::int64_t target;

  template <class T, int kItems>
  __device__ __forceinline__ Pack<T, kItems> of(Pack<T, kItems> pack, std::int64_t first) const {
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      const float probability = expf(pack[i] - maximum) * inverse_sum;
      const float gradient = scale * (probability - (first + i == target ? 1.0F : 0.0F));
      pack.set(i, first + i < valid_columns ? gradient : 0.0F);
    }
    return pack;
  }
};

// A block reads its row once, with a running maximum and sum, and writes it once, from its stash.
template <class T, int kItems, bool kStashed>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) whole_kernel(Whole<T> args) {
  using RowPack = Pack<T, kItems>;
  const Stash<T, kStashed> stash;
  for_block_rows(args.rows, [&](std::int64_t row) {
    T* const logits = args.logits + row * args.columns;
    const std::int64_t target = args.targets[row];
    const bool known = target >= 0 && target < args.valid_columns;
    // Before the reduction, in which all threads wait for each other: after it, others overwrite the row.
    const float target_logit = known && threadIdx.x == 0 ? to_f32(logits[target]) : not_a_number();
    ExpSum mine;
    for_thread_packs<kItems>(
        args.columns, [&](std::int64_t first) { return RowPack::load(logits + first); },
        [&](std::int64_t first, const RowPack& pack) {
          stash.keep(first, pack);
          if (first < args.valid_columns) mine.add(pack, args.valid_columns - first);
        });
    const ExpSum all = block_reduce(mine);
    if (threadIdx.x == 0) args.losses[row] = loss_of(all, target_logit);
    const Gradient gradient{all.maximum, 1.0F / all.sum, args.scale, args.valid_columns, target};
    for_thread_packs<kItems>(
        args.columns, [&](std::int64_t first) { return stash.template load_again<kItems>(logits, first); },
        [&](std::int64_t first, const RowPack& pack) { gradient.of(pack, first).store(logits + first); });
  });
}

template <class T, int kItems>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) stats_kernel(Stats<T> args) {
  using RowPack = Pack<T, kItems>;
  for_block_rows(args.rows, [&](std::int64_t row) {
    const T* const logits = args.logits + row * args.columns;
    ExpSum mine;
    for_thread_packs<kItems>(
        args.valid_columns, [&](std::int64_t first) { return RowPack::load(logits + first); },
        [&](std::int64_t first, const RowPack& pack) { mine.add(pack, args.valid_columns - first); });
    const ExpSum all = block_reduce(mine);
    if (threadIdx.x != 0) return;
    const std::int64_t target = args.targets[row];
    const std::int64_t column = target - args.first_id;
    const bool here = target >= 0 && column >= 0 && column < args.valid_columns;
    float* const stats = args.stats + 3 * row;
    stats[0] = all.maximum;
    stats[1] = all.sum;
    stats[2] = here ? to_f32(logits[column]) : (target < 0 ? not_a_number() : 0.0F);
  });
}

struct Merged {
  ExpSum row;
  float target_logit = 0;
};

// All shards' stats of a row, in the shards' order. Each thread does it for itself.
__device__ __forceinline__ Merged merged_stats(const float* stats, std::int64_t shards, std::int64_t rows,
                                               std::int64_t row) {
  Merged merged;
  const float* const first = stats + 3 * row;
  const std::int64_t stride = 3 * rows;
  for (std::int64_t s = 0; s < shards; ++s) merged.row.maximum = fmaxf(merged.row.maximum, first[s * stride]);
  for (std::int64_t s = 0; s < shards; ++s) {
    merged.row.sum += first[s * stride + 1] * expf(first[s * stride] - merged.row.maximum);
    merged.target_logit += first[s * stride + 2];
  }
  return merged;
}

template <class T, int kItems>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) finish_kernel(Finish<T> args) {
  using RowPack = Pack<T, kItems>;
  for_block_rows(args.rows, [&](std::int64_t row) {
    T* const logits = args.logits + row * args.columns;
    const std::int64_t target = args.targets[row];
    const Merged merged = merged_stats(args.stats, args.shards, args.rows, row);
    if (threadIdx.x == 0) args.losses[row] = target < 0 ? not_a_number() : loss_of(merged.row, merged.target_logit);
    const Gradient gradient{merged.row.maximum, 1.0F / merged.row.sum, args.scale, args.valid_columns,
                            target - args.first_id};
    for_thread_packs<kItems>(
        args.columns, [&](std::int64_t first) { return RowPack::load(logits + first); },
        [&](std::int64_t first, const RowPack& pack) { gradient.of(pack, first).store(logits + first); });
  });
}

}  // namespace

void run_cuda(const CrossEntropy& args, CudaContext& cuda) {
  with_cuda_activation_type(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Whole<T> whole{
        args.rows,           args.columns,           args.valid_columns, args.scale, args.targets.as<std::int32_t>(),
        args.logits.as<T>(), args.losses.as<float>()};
    const int items = items_an_access(sizeof(T), args.columns, {args.logits.data});
    with_items<kAccessBytes / sizeof(T)>(items, [&](auto constant) {
      constexpr int kItems = decltype(constant)::value;
      const RowLayout layout = block_row_layout(args.rows, args.columns, items, sizeof(T), cuda.num_multiprocessors());
      auto* const kernel = layout.stash_bytes > 0 ? whole_kernel<T, kItems, true> : whole_kernel<T, kItems, false>;
      launch(cuda, "cross_entropy", shape_of(layout), kernel, whole);
    });
  });
}

void run_cuda(const CrossEntropyStats& args, CudaContext& cuda) {
  with_cuda_activation_type(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Stats<T> stats{
        args.rows,           args.columns,          args.valid_columns, args.first_id, args.targets.as<std::int32_t>(),
        args.logits.as<T>(), args.stats.as<float>()};
    const int items = items_an_access(sizeof(T), args.columns, {args.logits.data});
    const RowLayout layout = block_row_layout(args.rows, args.columns, items, 0, cuda.num_multiprocessors());
    with_items<kAccessBytes / sizeof(T)>(items, [&](auto constant) {
      launch(cuda, "cross_entropy_stats", shape_of(layout), stats_kernel<T, decltype(constant)::value>, stats);
    });
  });
}

void run_cuda(const CrossEntropyFinish& args, CudaContext& cuda) {
  with_cuda_activation_type(args.logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Finish<T> finish{args.rows,
                           args.columns,
                           args.valid_columns,
                           args.first_id,
                           args.shards,
                           args.scale,
                           args.targets.as<std::int32_t>(),
                           args.stats.as<float>(),
                           args.logits.as<T>(),
                           args.losses.as<float>()};
    const int items = items_an_access(sizeof(T), args.columns, {args.logits.data});
    const RowLayout layout = block_row_layout(args.rows, args.columns, items, 0, cuda.num_multiprocessors());
    with_items<kAccessBytes / sizeof(T)>(items, [&](auto constant) {
      launch(cuda, "cross_entropy_finish", shape_of(layout), finish_kernel<T, decltype(constant)::value>, finish);
    });
  });
}

}  // namespace lockstep::kernels
