#include "kernels/base/cuda_loops.cuh"

#include "kernels/base/cuda_context.h"
#include "kernels/gemm/gemm_cuda.h"
#include "kernels/moe/grouped_gemm.h"
#include "kernels/moe/permute.h"

namespace lockstep::kernels {
namespace {

struct Assignment {
  std::int64_t tokens;
  std::int64_t top_k;
  std::int64_t capacity;
  std::int64_t rows;
  const std::int32_t* choices;
  std::int32_t* counts;
  std::int32_t* slots;
  std::int32_t* copies;  // all -1 on entry
};

// One block per expert. Each thread takes a run of copies, first choices before second ones: it counts the copies of
// its expert, adds the counts of the threads before it, and then assigns rows to its own. Copies of the experts before
// this one are counted in the same pass, so that no other kernel is needed.
__global__ void __launch_bounds__(kBlockThreads) assign_kernel(Assignment args) {
  __shared__ std::int32_t mine[kBlockThreads];
  __shared__ std::int32_t before[kBlockThreads];
  const auto expert = static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t copies = args.tokens * args.top_k;
  const std::int64_t begin = copies * threadIdx.x / kBlockThreads;
  const std::int64_t end = copies * (threadIdx.x + 1) / kBlockThreads;
  const auto copy_at = [&](std::int64_t i) { return i % args.tokens * args.top_k + i / args.tokens; };
  std::int32_t own = 0;
  std::int32_t others = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int32_t choice = args.choices[copy_at(i)];
    own += choice == expert ? 1 : 0;
    others += choice < expert ? 1 : 0;
  }
  mine[threadIdx.x] = own;
  before[threadIdx.x] = others;
  __syncthreads();
  std::int32_t rank = 0;  // index of this thread's first copy among the expert's
  std::int32_t first = 0;
  std::int32_t count = 0;
  for (int t = 0; t < kBlockThreads; ++t) {
    if (t < static_cast<int>(threadIdx.x)) rank += mine[t];
    count += mine[t];
    first += before[t];
  }
  if (args.capacity > 0) first = static_cast<std::int32_t>(expert * args.capacity);
  if (threadIdx.x == 0) args.counts[expert] = count;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t copy = copy_at(i);
    if (args.choices[copy] != expert) continue;
    const bool kept = args.capacity == 0 || rank < args.capacity;
    args.slots[copy] = kept ? first + rank : -1;
    if (kept) args.copies[first + rank] = static_cast<std::int32_t>(copy);
    ++rank;
  }
}

template <class T, int kItems>
using RowPack = Pack<T, kItems>;

// Calls visit(c) with the first column of each of this lane's packs.
template <int kItems, class Visit>
__device__ __forceinline__ void for_columns(std::int64_t columns, Visit&& visit) {
  for (std::int64_t c = std::int64_t{lane_index()} * kItems; c < columns; c += std::int64_t{kWarpLanes} * kItems) {
    visit(c);
  }
}

template <class T>
struct PermuteArgs {
  std::int64_t top_k;
  std::int64_t rows;
  std::int64_t columns;
  const T* x;
  const std::int32_t* copies;
  T* y;
};

// One warp per row.
template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) permute_kernel(PermuteArgs<T> args) {
  for_warp_rows(args.rows, [&](std::int64_t row) {
    const std::int32_t copy = args.copies[row];
    const T* const from = copy < 0 ? nullptr : args.x + copy / args.top_k * args.columns;
    T* const to = args.y + row * args.columns;
    for_packs<4>(
        std::int64_t{lane_index()} * kItems, std::int64_t{kWarpLanes} * kItems, args.columns,
        [&](std::int64_t c) { return from == nullptr ? RowPack<T, kItems>{} : RowPack<T, kItems>::load(from + c); },
        [&](std::int64_t c, const RowPack<T, kItems>& pack) { pack.store(to + c); });
  });
}

template <class T>
struct UnpermuteArgs {
  std::int64_t tokens;
  std::int64_t top_k;
  std::int64_t columns;
  const T* y;
  const std::int32_t* slots;
  const float* gates;  // null: all gates are 1
  T* out;
};

// One warp per token. The sum begins with the first copy, not with 0: a single copy with gate 1 keeps its bits.
template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) unpermute_kernel(UnpermuteArgs<T> args) {
  for_warp_rows(args.tokens, [&](std::int64_t token) {
    for_columns<kItems>(args.columns, [&](std::int64_t c) {
      float sum[kItems] = {};
      bool is_first = true;
      for (std::int64_t copy = token * args.top_k; copy < (token + 1) * args.top_k; ++copy) {
        const std::int32_t slot = args.slots[copy];
        if (slot < 0) continue;
        const float gate = args.gates == nullptr ? 1.0F : args.gates[copy];
        const auto row = RowPack<T, kItems>::load(args.y + slot * args.columns + c);
#pragma unroll
        for (int i = 0; i < kItems; ++i) sum[i] = is_first ? row[i] * gate : sum[i] + row[i] * gate;
        is_first = false;
      }
      RowPack<T, kItems> out;
#pragma unroll
      for (int i = 0; i < kItems; ++i) out.set(i, sum[i]);
      out.store(args.out + token * args.columns + c);
    });
  });
}

template <class T>
struct UnpermuteBackwardArgs {
  std::int64_t tokens;
  std::int64_t top_k;
  std::int64_t rows;
  std::int64_t columns;
  const T* d_out;
  const T* y;
  const std::int32_t* slots;
  const std::int32_t* copies;
  const float* gates;
  T* dy;
  float* d_gates;
};

// One warp per copy.
template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) weigh_kernel(UnpermuteBackwardArgs<T> args) {
  for_warp_rows(args.tokens * args.top_k, [&](std::int64_t copy) {
    const std::int32_t slot = args.slots[copy];
    Sum dot;
    if (slot >= 0) {
      const float gate = args.gates[copy];
      const T* const d_out = args.d_out + copy / args.top_k * args.columns;
      for_columns<kItems>(args.columns, [&](std::int64_t c) {
        auto slope = RowPack<T, kItems>::load(d_out + c);
        const auto row = RowPack<T, kItems>::load(args.y + slot * args.columns + c);
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
          dot.value += slope[i] * row[i];
          slope.set(i, slope[i] * gate);
        }
        slope.store(args.dy + slot * args.columns + c);
      });
    }
    const float sum = warp_reduce(dot).value;
    if (lane_index() == 0) args.d_gates[copy] = sum;
  });
}

// One warp per row without a copy.
template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads) clear_kernel(UnpermuteBackwardArgs<T> args) {
  for_warp_rows(args.rows, [&](std::int64_t row) {
    if (args.copies[row] >= 0) return;
    for_columns<kItems>(args.columns,
                        [&](std::int64_t c) { RowPack<T, kItems>{}.store(args.dy + row * args.columns + c); });
  });
}

template <class Group>
void queue_group(const Group& group, bool rows_vary, CudaContext& cuda) {
  Product product = product_of(group);
  product.varies = rows_vary;
  queue_product(product, cuda);
}

void queue_bias_gradient(const GemmWeightGradient& args, CudaContext& cuda) {
  const GemmShape& s = args.shape;
  queue_column_sums(rows_of(args.dy, s.outputs), s.rows, s.outputs, args.dbias.as<float>(),
                    cuda.workspace(column_sums_bytes(s.rows, s.outputs, cuda)), cuda);
}

}  // namespace

void run_cuda(const AssignSlots& args, CudaContext& cuda) {
  core::check_cuda(cudaMemsetAsync(args.copies.data, 0xff, size_bytes(core::DType::i32, args.rows()), stream_of(cuda)),
                   "cudaMemsetAsync", cuda.place());
  const Assignment assignment{.tokens = args.tokens,
                              .top_k = args.top_k,
                              .capacity = args.capacity,
                              .rows = args.rows(),
                              .choices = args.choices.as<std::int32_t>(),
                              .counts = args.counts.as<std::int32_t>(),
                              .slots = args.slots.as<std::int32_t>(),
                              .copies = args.copies.as<std::int32_t>()};
  launch(cuda, "assign_slots", {.blocks = args.experts}, assign_kernel, assignment);
}

void run_cuda(const Permute& args, CudaContext& cuda) {
  with_packs(args.x.dtype, args.columns, {args.x.data, args.y.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    const PermuteArgs<T> rows{args.top_k,    args.rows, args.columns, args.x.as<T>(), args.copies.as<std::int32_t>(),
                              args.y.as<T>()};
    launch(cuda, "permute", warps_for(args.rows, cuda), permute_kernel<T, decltype(items)::value>, rows);
  });
}

void run_cuda(const Unpermute& args, CudaContext& cuda) {
  with_packs(args.y.dtype, args.columns, {args.y.data, args.out.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    const UnpermuteArgs<T> rows{args.tokens,
                                args.top_k,
                                args.columns,
                                args.y.as<T>(),
                                args.slots.as<std::int32_t>(),
                                args.with_gates ? args.gates.as<float>() : nullptr,
                                args.out.as<T>()};
    launch(cuda, "unpermute", warps_for(args.tokens, cuda), unpermute_kernel<T, decltype(items)::value>, rows);
  });
}

void run_cuda(const UnpermuteBackward& args, CudaContext& cuda) {
  with_packs(args.d_out.dtype, args.columns, {args.d_out.data, args.y.data, args.dy.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    constexpr int kItems = decltype(items)::value;
    const UnpermuteBackwardArgs<T> rows{args.tokens,
                                        args.top_k,
                                        args.rows,
                                        args.columns,
                                        args.d_out.as<T>(),
                                        args.y.as<T>(),
                                        args.slots.as<std::int32_t>(),
                                        args.copies.as<std::int32_t>(),
                                        args.gates.as<float>(),
                                        args.dy.as<T>(),
                                        args.d_gates.as<float>()};
    launch(cuda, "unpermute_bwd", warps_for(args.tokens * args.top_k, cuda), weigh_kernel<T, kItems>, rows);
    launch(cuda, "unpermute_bwd", warps_for(args.rows, cuda), clear_kernel<T, kItems>, rows);
  });
}

void run_cuda(const GroupedGemmForward& args, CudaContext& cuda) {
  if (takes_wgmma(args.shape, args.x.dtype, begin_at_multiples_of(16, args), cuda))
    return run_hopper_experts(args, cuda);
  for (const GemmForward& group : groups_of(args)) queue_group(group, args.shape.rows_vary, cuda);
}

void run_cuda(const GroupedGemmInputGradient& args, CudaContext& cuda) {
  if (takes_wgmma(args.shape, args.dy.dtype, begin_at_multiples_of(16, args), cuda))
    return run_hopper_experts(args, cuda);
  for (const GemmInputGradient& group : groups_of(args)) queue_group(group, args.shape.rows_vary, cuda);
}

void run_cuda(const GroupedGemmWeightGradient& args, CudaContext& cuda) {
  const bool by_wgmma = takes_wgmma(args.shape, args.x.dtype, begin_at_multiples_of(16, args), cuda);
  if (by_wgmma) run_hopper_experts(args, cuda);
  for (const GemmWeightGradient& group : groups_of(args)) {
    if (!by_wgmma) queue_group(group, args.shape.rows_vary, cuda);
    if (args.with_bias) queue_bias_gradient(group, cuda);
  }
}

}  // namespace lockstep::kernels
