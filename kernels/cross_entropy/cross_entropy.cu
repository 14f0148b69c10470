#include "kernels/base/cuda_loops.cuh"
#include "kernels/cross_entropy/cross_entropy.h"

namespace lockstep::kernels {
namespace {

template <class T>
struct Whole {
  std::int64_t rows;
  int columns;  // rows have fewer than 2^31 elements
  int valid_columns;
  float scale;
  const std::int32_t* targets;
  T* logits;
  float* losses;
};

template <class T>
struct Stats {
  std::int64_t rows;
  int columns;
  int valid_columns;
  std::int64_t first_id;
  const std::int32_t* targets;
  const T* logits;
  float* stats;  // [rows, 3]
};

template <class T>
struct Finish {
  std::int64_t rows;
  int columns;
  int valid_columns;
  std::int64_t first_id;
  std::int64_t shards;
  float scale;
  const std::int32_t* targets;
  const float* stats;  // [shards, rows, 3]
  T* logits;
  float* losses;
};

__device__ __forceinline__ float loss_of(const ExpSum& row, float target_logit) {
  return logf(row.sum_of_exps()) + (row.maximum - target_logit);
}

// Returns the number of columns in packs that are completely valid.
template <int kItems>
__device__ __forceinline__ int whole_columns(int valid_columns) {
  return valid_columns / kItems * kItems;
}

// Calls visit(first) for this thread's packs after those: the pack that is partly valid, and the padding.
template <int kItems, class Visit>
__device__ __forceinline__ void for_other_packs(int columns, int valid_columns, Visit&& visit) {
  const int stride = static_cast<int>(blockDim.x) * kItems;
  for (int c = whole_columns<kItems>(valid_columns) + static_cast<int>(threadIdx.x) * kItems; c < columns;
       c += stride) {
    visit(c);
  }
}

// scale * (softmax - one at the target), and 0 at and above valid_columns. Packs are computed as if they did not hold
// the target; the thread that stores the target's pack then stores the target's element again.
struct Gradient {
  float shift;
  float sum;
  float inverse_sum;
  float scale;
  int valid_columns;
  int target;  // -1: not in these columns

  template <class T, int kItems>
  __device__ __forceinline__ Pack<T, kItems> of(Pack<T, kItems> pack, int valid = kItems) const {
    const float factor = scale * inverse_sum;
#pragma unroll
    for (int i = 0; i < kItems; ++i) pack.set(i, i < valid ? ExpSum::power_of(pack[i], shift) * factor : 0.0F);
    return pack;
  }
  // Returns whether this thread stores the pack that holds the target.
  template <int kItems>
  __device__ __forceinline__ bool has_target() const {
    const int whole = whole_columns<kItems>(valid_columns);
    const int pack = (target < whole ? target : target - whole) / kItems;
    return target >= 0 && pack % static_cast<int>(blockDim.x) == static_cast<int>(threadIdx.x);
  }
  // Stores the row's gradient; `load(first)` returns a pack of the row before it is overwritten.
  template <class T, int kItems, class Load>
  __device__ __forceinline__ void store(T* logits, int columns, Load&& load) const {
    const bool mine = has_target<kItems>();
    const float target_logit = mine ? to_f32(logits[target]) : 0.0F;
    for_thread_packs<kItems>(whole_columns<kItems>(valid_columns), load,
                             [&](int c, const Pack<T, kItems>& pack) { of(pack).store_once(logits + c); });
    for_other_packs<kItems>(columns, valid_columns, [&](int c) { of(load(c), valid_columns - c).store(logits + c); });
    // Divided, not multiplied by the inverse: a probability of 1 gives a gradient of 0.
    if (mine) logits[target] = from_f32<T>(scale * (ExpSum::power_of(target_logit, shift) / sum - 1.0F));
  }
};

// Adds the valid elements of a row; `load` is as above.
template <class T, int kItems, class Load>
__device__ __forceinline__ void add_row(ExpSum& sum, int columns, int valid_columns, Load&& load) {
  for_thread_packs<kItems>(whole_columns<kItems>(valid_columns), load,
                           [&](int, const Pack<T, kItems>& pack) { sum.add(pack); });
  for_other_packs<kItems>(columns, valid_columns, [&](int c) {
    const Pack<T, kItems> pack = load(c);
    if (c < valid_columns) sum.add_some(pack, valid_columns - c);
  });
}

// A block reads its row once, with a running maximum and sum, and writes it once, from its stash. If the blocks of a
// cluster share the row, each does so with its part.
template <class T, int kItems, bool kStashed>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) whole_kernel(Whole<T> args) {
  wait_for_stream();
  using RowPack = Pack<T, kItems>;
  const Stash<T, kStashed> stash;
  const RowSlice slice = row_slice<kItems>(args.columns);
  const int begin = static_cast<int>(slice.begin);
  const int valid_columns = max(0, min(args.valid_columns - begin, slice.columns));
  const bool first_thread = begin == 0 && threadIdx.x == 0;  // the first of all threads that share the row
  RowReduction<ExpSum> reduce;
  for_block_rows(args.rows, [&](std::int64_t row) {
    T* const logits = args.logits + row * args.columns + begin;
    const int target = args.targets[row];
    const bool known = target >= 0 && target < args.valid_columns;
    const bool here = known && target >= begin && target - begin < valid_columns;
    // Read before the reduction, at which all threads wait for each other: after it, other threads overwrite the row.
    const float target_logit = known && first_thread ? to_f32(logits[target]) : not_a_number();
    ExpSum mine;
    add_row<T, kItems>(mine, slice.columns, valid_columns, [&](int c) {
      const RowPack pack = kStashed ? RowPack::load_once(logits + c) : RowPack::load(logits + c);
      stash.keep(c, pack);
      return pack;
    });
    const ExpSum all = reduce(mine);
    if (first_thread) args.losses[row] = loss_of(all, target_logit);
    const Gradient gradient{ExpSum::shift_of(all.maximum), all.sum, 1.0F / all.sum, args.scale, valid_columns,
                            here ? target - begin : -1};
    gradient.store<T, kItems>(logits, slice.columns,
                              [&](int c) { return stash.template load_again<kItems>(logits, c); });
  });
}

template <class T, int kItems>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks) stats_kernel(Stats<T> args) {
  wait_for_stream();
  for_block_rows(args.rows, [&](std::int64_t row) {
    const T* const logits = args.logits + row * args.columns;
    ExpSum mine;
    add_row<T, kItems>(mine, args.columns, args.valid_columns,
                       [&](int c) { return Pack<T, kItems>::load(logits + c); });
    const ExpSum all = block_reduce(mine);
    if (threadIdx.x != 0) return;
    const std::int64_t target = args.targets[row];
    const std::int64_t column = target - args.first_id;
    const bool here = target >= 0 && column >= 0 && column < args.valid_columns;
    float* const stats = args.stats + 3 * row;
    stats[0] = all.maximum;
    stats[1] = all.sum_of_exps();
    stats[2] = here ? to_f32(logits[column]) : (target < 0 ? not_a_number() : 0.0F);
  });
}

struct Merged {
  ExpSum row;  // its sum is a sum of exp(x - maximum)
  float target_logit = 0;
};

// Merges all shards' stats of a row, in the shards' order. Each thread does this for itself.
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
  wait_for_stream();
  for_block_rows(args.rows, [&](std::int64_t row) {
    T* const logits = args.logits + row * args.columns;
    const std::int64_t target = args.targets[row];
    const Merged merged = merged_stats(args.stats, args.shards, args.rows, row);
    if (threadIdx.x == 0) {
      const float log_sum = logf(merged.row.sum);
      args.losses[row] = target < 0 ? not_a_number() : log_sum + (merged.row.maximum - merged.target_logit);
    }
    const float shift = ExpSum::shift_of(merged.row.maximum);
    // power_of() returns powers with a factor that this sum does not have, see ExpSum.
    const float sum = merged.row.sum * ExpSum::power_of(merged.row.maximum, shift);
    const std::int64_t column = target - args.first_id;
    const bool here = target >= 0 && column >= 0 && column < args.valid_columns;
    const Gradient gradient{
        shift, sum, 1.0F / sum, args.scale, args.valid_columns, here ? static_cast<int>(column) : -1};
    gradient.store<T, kItems>(logits, args.columns, [&](int c) { return Pack<T, kItems>::load(logits + c); });
  });
}

}  // namespace

void run_cuda(const CrossEntropy& args, CudaContext& cuda) {
  with_packs(args.logits.dtype, args.columns, {args.logits.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    constexpr int kItems = decltype(items)::value;
    const Whole<T> whole{args.rows,
                         static_cast<int>(args.columns),
                         static_cast<int>(args.valid_columns),
                         args.scale,
                         args.targets.as<std::int32_t>(),
                         args.logits.as<T>(),
                         args.losses.as<float>()};
    const RowLayout layout = block_row_layout(args.rows, args.columns, kItems, sizeof(T), cuda.num_multiprocessors(),
                                              cuda.most_cluster_blocks());
    auto* const kernel = layout.stash_bytes > 0 ? whole_kernel<T, kItems, true> : whole_kernel<T, kItems, false>;
    launch_early(cuda, "cross_entropy", shape_of(layout), kernel, whole);
  });
}

void run_cuda(const CrossEntropyStats& args, CudaContext& cuda) {
  with_packs(args.logits.dtype, args.columns, {args.logits.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    constexpr int kItems = decltype(items)::value;
    const Stats<T> stats{args.rows,
                         static_cast<int>(args.columns),
                         static_cast<int>(args.valid_columns),
                         args.first_id,
                         args.targets.as<std::int32_t>(),
                         args.logits.as<T>(),
                         args.stats.as<float>()};
    const RowLayout layout = block_row_layout(args.rows, args.columns, kItems, 0, cuda.num_multiprocessors());
    launch_early(cuda, "cross_entropy_stats", shape_of(layout), stats_kernel<T, kItems>, stats);
  });
}

void run_cuda(const CrossEntropyFinish& args, CudaContext& cuda) {
  with_packs(args.logits.dtype, args.columns, {args.logits.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    constexpr int kItems = decltype(items)::value;
    const Finish<T> finish{args.rows,
                           static_cast<int>(args.columns),
                           static_cast<int>(args.valid_columns),
                           args.first_id,
                           args.shards,
                           args.scale,
                           args.targets.as<std::int32_t>(),
                           args.stats.as<float>(),
                           args.logits.as<T>(),
                           args.losses.as<float>()};
    const RowLayout layout = block_row_layout(args.rows, args.columns, kItems, 0, cuda.num_multiprocessors());
    launch_early(cuda, "cross_entropy_finish", shape_of(layout), finish_kernel<T, kItems>, finish);
  });
}

}  // namespace lockstep::kernels
