#include <algorithm>

#include "core/error.h"
#include "kernels/base/cuda_loops.cuh"
#include "kernels/rotary/rotary.h"

namespace lockstep::kernels {
namespace {

constexpr std::int64_t kMostHeadColumns = 256;  // the turns are an argument of the kernel

template <class T>
struct Operands {
  std::int64_t rows;
  std::int64_t length;
  std::int64_t first_position;
  std::int64_t stride;
  int heads;
  int half;  // half of a head's columns
  int rows_per_block;
  float direction;  // -1 rotates backwards
  double turns[kMostHeadColumns / 2];
  const T* x;
  T* y;
};

// The cosine and sine of a pair of a row; the angle is reduced in f64.
struct Turn {
  float cosine;
  float sine;
};
template <class T>
__device__ __forceinline__ Turn turn_of(const Operands<T>& args, std::int64_t row, int pair) {
  const double turns = static_cast<double>(args.first_position + row % args.length) * args.turns[pair];
  Turn turn;
  sincospif(2.0F * static_cast<float>(turns - rint(turns)), &turn.sine, &turn.cosine);
  turn.sine *= args.direction;
  return turn;
}

// Rotates kItems pairs of a head from pair `first` on. With either layout these are two packs.
template <RotaryPairs kPairs, int kItems, class T>
__device__ __forceinline__ void turn_pairs(const T* x, T* y, int first, int half, const Turn* turns) {
  constexpr bool kHalves = kPairs == RotaryPairs::halves;
  using Elems = Pack<T, kItems>;
  const int left = kHalves ? first : 2 * first;
  const int right = kHalves ? first + half : 2 * first + kItems;
  const Elems in[2] = {Elems::load(x + left), Elems::load(x + right)};
  Elems out[2];
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    constexpr int kNext = kHalves ? kItems : 1;  // distance between the two elements of a pair
    const int a = kHalves ? i : 2 * i;
    const int b = a + kNext;
    const float of_a = in[a / kItems][a % kItems];
    const float of_b = in[b / kItems][b % kItems];
    const Turn turn = turns[first + i];
    out[a / kItems].set(a % kItems, of_a * turn.cosine - of_b * turn.sine);
    out[b / kItems].set(b % kItems, of_a * turn.sine + of_b * turn.cosine);
  }
  out[0].store(y + left);
  out[1].store(y + right);
}

// A block processes some rows at a time: its threads compute their cosines and sines, which all heads share.
template <RotaryPairs kPairs, int kItems, class T>
__global__ void __launch_bounds__(kBlockThreads) rotary_kernel(Operands<T> args) {
  Turn* const turns = dynamic_shared<Turn>();
  const int packs_per_head = args.half / kItems;
  const int packs_per_row = args.heads * packs_per_head;
  const std::int64_t stride = std::int64_t{gridDim.x} * args.rows_per_block;
  for (std::int64_t first_row = std::int64_t{blockIdx.x} * args.rows_per_block; first_row < args.rows;
       first_row += stride) {
    const std::int64_t left = args.rows - first_row;
    const int rows = left < args.rows_per_block ? static_cast<int>(left) : args.rows_per_block;
    __syncthreads();  // all threads have finished with the previous rows
    for (int i = static_cast<int>(threadIdx.x); i < rows * args.half; i += kBlockThreads) {
      turns[i] = turn_of(args, first_row + i / args.half, i % args.half);
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < rows * packs_per_row; i += kBlockThreads) {
      const int row = i / packs_per_row;
      const int head = i % packs_per_row / packs_per_head;
      const std::int64_t at = (first_row + row) * args.stride + std::int64_t{head} * 2 * args.half;
      turn_pairs<kPairs, kItems>(args.x + at, args.y + at, i % packs_per_head * kItems, args.half,
                                 turns + row * args.half);
    }
  }
}

template <class T>
Operands<T> operands_for(const Rotary& args, std::int64_t rows_per_block) {
  Operands<T> operands{.rows = args.rows,
                       .length = args.length,
                       .first_position = args.first_position,
                       .stride = args.row_stride(),
                       .heads = static_cast<int>(args.heads),
                       .half = static_cast<int>(args.head_columns / 2),
                       .rows_per_block = static_cast<int>(rows_per_block),
                       .direction = args.backward ? -1.0F : 1.0F,
                       .turns = {},
                       .x = args.x.as<T>(),
                       .y = args.y.as<T>()};
  const std::vector<double> turns = rotary_turns(args);
  std::copy(turns.begin(), turns.end(), operands.turns);
  return operands;
}

template <RotaryPairs kPairs, class T>
void run(const Rotary& args, CudaContext& cuda) {
  const std::int64_t half = args.head_columns / 2;
  const bool rows_fit = args.row_stride() % (kAccessBytes / sizeof(T)) == 0;
  const int items = rows_fit ? items_an_access(sizeof(T), half, {args.x.data, args.y.data}) : 1;
  with_items<static_cast<int>(kAccessBytes / sizeof(T))>(items, [&](auto constant) {
    constexpr int kItems = decltype(constant)::value;
    constexpr std::int64_t kPacksPerBlock = 4 * std::int64_t{kBlockThreads};
    constexpr std::int64_t kMostRows = 16;
    const std::int64_t packs_per_row = args.heads * (half / kItems);
    const std::int64_t rows_per_block = std::clamp<std::int64_t>(kPacksPerBlock / packs_per_row, 1, kMostRows);
    const std::int64_t tiles = (args.rows + rows_per_block - 1) / rows_per_block;
    const LaunchShape shape{.blocks = grid_blocks(tiles, cuda.num_multiprocessors()),
                            .shared_bytes = static_cast<std::size_t>(rows_per_block * half) * sizeof(Turn)};
    launch(cuda, "rotary", shape, rotary_kernel<kPairs, kItems, T>, operands_for<T>(args, rows_per_block));
  });
}

}  // namespace

void run_cuda(const Rotary& args, CudaContext& cuda) {
  check_at_most("rotary on CUDA", "head_columns", args.head_columns, kMostHeadColumns);
  with_cuda_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (args.pairs == RotaryPairs::halves) {
      run<RotaryPairs::halves, T>(args, cuda);
    } else {
      run<RotaryPairs::neighbours, T>(args, cuda);
    }
  });
}

}  // namespace lockstep::kernels
