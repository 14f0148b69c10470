// A thread block processes a tile of x, 128 x 128, that consists of whole scale blocks or lies inside of one: a warp
// has every eighth row, a thread four columns.
#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_reductions.cuh"
#include "kernels/fp8/fp8.h"

namespace lockstep::kernels {
namespace {

constexpr int kTile = static_cast<int>(kScaleTile);
constexpr int kEach = kTile / kWarpLanes;          // columns per thread
constexpr int kRowsEach = kTile / kWarpsPerBlock;  // rows per warp
constexpr std::uint32_t kMagnitude =
    0x7fffffffU;  // mask of a float's magnitude: its bits order like magnitudes, NaN last

// The elements of a tile that share a scale.
enum class Share : std::uint8_t { row, column, all };

// x, and the positions of its elements' scales: (row, column) has its scale at row / block_rows * row_step + ...
template <class T>
struct Matrix {
  const T* x;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t block_rows;
  std::int64_t block_columns;
  std::int64_t row_step;
  std::int64_t column_step;

  __device__ __forceinline__ std::int64_t block(std::int64_t row, std::int64_t column) const {
    return row / block_rows * row_step + column / block_columns * column_step;
  }
};

struct TileOrigin {
  std::int64_t row;
  std::int64_t column;
};
__device__ __forceinline__ TileOrigin tile_origin(std::int64_t columns) {
  const std::int64_t across = (columns + kTile - 1) / kTile;
  return {static_cast<std::int64_t>(blockIdx.x) / across * kTile,
          static_cast<std::int64_t>(blockIdx.x) % across * kTile};
}

// The thread's column number i of the tile: adjacent columns if a thread loads them at once, else one per adjacent
// lane.
template <int kItems>
__device__ __forceinline__ int column_of(int i) {
  return kItems == kEach ? lane_index() * kEach + i : lane_index() + i * kWarpLanes;
}

// Loads the thread's elements of one row; 0 past the end of x.
template <int kItems, class T>
__device__ __forceinline__ void load_row(const Matrix<T>& m, std::int64_t row, std::int64_t column, float (&x)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) x[i] = 0;
  if (row >= m.rows) return;
  const T* const from = m.x + row * m.columns + column;
  if constexpr (kItems == kEach) {
    if (column + column_of<kItems>(0) < m.columns) Pack<T, kEach>::load(from + column_of<kItems>(0)).widen(x);
  } else {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (column + column_of<kItems>(i) < m.columns) x[i] = to_f32(from[column_of<kItems>(i)]);
    }
  }
}

struct MaximumBits {
  std::uint32_t value = 0;
  __device__ __forceinline__ static MaximumBits combine(MaximumBits a, MaximumBits b) {
    return {max(a.value, b.value)};
  }
  __device__ __forceinline__ MaximumBits partner(int mask) const { return {__shfl_xor_sync(kAllLanes, value, mask)}; }
};

// Stores the thread's elements of one row that are inside of the matrix.
template <int kItems, class T>
__device__ __forceinline__ void store_row(const Pack<T, kEach>& x, T* to, std::int64_t columns, std::int64_t row,
                                          std::int64_t column) {
  T* const of_row = to + row * columns;
  if constexpr (kItems == kEach) {
    if (column + column_of<kItems>(0) < columns) x.store(of_row + column + column_of<kItems>(0));
  } else {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (column + column_of<kItems>(i) < columns) of_row[column + column_of<kItems>(i)] = x.items[i];
    }
  }
}

__device__ __forceinline__ void raise_each(const float (&x)[kEach], std::uint32_t (&largest)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) largest[i] = max(largest[i], __float_as_uint(x[i]) & kMagnitude);
}
__device__ __forceinline__ MaximumBits largest_of(const std::uint32_t (&each)[kEach]) {
  return {max(max(each[0], each[1]), max(each[2], each[3]))};
}
// For all threads of a block whose tile has one scale, or a part of one.
template <class T>
__device__ __forceinline__ void raise_block(const Matrix<T>& m, const TileOrigin& tile,
                                            const std::uint32_t (&mine)[kEach], std::uint32_t* largest) {
  const MaximumBits all = block_reduce(largest_of(mine));
  if (threadIdx.x == 0) atomicMax(largest + m.block(tile.row, tile.column), all.value);
}

__device__ __forceinline__ bool is_history(float previous) {
  return previous > 0 && isfinite(previous);
}

// Maxima do not depend on the order of the blocks. `known`: scale blocks that have history there are left out; null:
// none are.
template <Share kShare, int kItems, class T>
__global__ void __launch_bounds__(kBlockThreads)
    largest_kernel(Matrix<T> m, const float* known, std::uint32_t* largest) {
  __shared__ std::uint32_t of_columns[kTile];
  const TileOrigin tile = tile_origin(m.columns);
  if constexpr (kShare == Share::all) {
    if (known != nullptr && is_history(known[m.block(tile.row, tile.column)])) return;
  }
  if (kShare == Share::column) {
    if (threadIdx.x < kTile) of_columns[threadIdx.x] = 0;
    __syncthreads();
  }
  std::uint32_t mine[kEach] = {};
#pragma unroll
  for (int r = 0; r < kRowsEach; ++r) {
    const std::int64_t row = tile.row + warp_index() + r * kWarpsPerBlock;
    float x[kEach];
    load_row<kItems>(m, row, tile.column, x);
    if constexpr (kShare == Share::row) {
      std::uint32_t each[kEach] = {};
      raise_each(x, each);
      const MaximumBits of_row = warp_reduce(largest_of(each));
      if (lane_index() == 0 && row < m.rows) atomicMax(largest + m.block(row, tile.column), of_row.value);
    } else {
      raise_each(x, mine);
    }
  }
  if constexpr (kShare == Share::column) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) atomicMax(of_columns + column_of<kItems>(i), mine[i]);
    __syncthreads();
    const std::int64_t column = tile.column + threadIdx.x;
    if (threadIdx.x < kTile && column < m.columns) {
      atomicMax(largest + m.block(tile.row, column), of_columns[threadIdx.x]);
    }
  }
  if constexpr (kShare == Share::all) raise_block(m, tile, mine, largest);
}

// Like fp8_scale(); `exponent_bits` of a scale 2^p is p + 127.
struct Scaling {
  int top_exponent;
  float largest_number;

  __device__ __forceinline__ float scale(float largest) const {
    if (!isfinite(largest)) return not_a_number();
    if (largest == 0) return 1.0F;
    const int exponent_bits = static_cast<int>((__float_as_uint(largest) + 0x1fffffU) >> 23U) - top_exponent;
    return __uint_as_float(static_cast<std::uint32_t>(max(1, min(exponent_bits, 253))) << 23U);
  }
  __device__ __forceinline__ float saturated(float x) const {
    return fabsf(x) > largest_number && isfinite(x) ? copysignf(largest_number, x) : x;
  }
};

// Computes the scales of all blocks before codes are made with them.
__global__ void __launch_bounds__(kBlockThreads)
    scales_kernel(const float* previous, const float* now, Scaling scaling, std::int64_t blocks, float* scales) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (i >= blocks) return;
  scales[i] = scaling.scale(is_history(previous[i]) ? previous[i] : now[i]);
}

// kRaises: also finds the tile's maximum in the same pass, for delayed scaling, whose scales are known before it.
template <bool kRaises, int kItems, class T, class Code>
__global__ void __launch_bounds__(kBlockThreads)
    encode_kernel(Matrix<T> m, const float* scales, Scaling scaling, std::uint32_t* largest, Code* codes) {
  const TileOrigin tile = tile_origin(m.columns);
  std::uint32_t mine[kEach] = {};
#pragma unroll
  for (int r = 0; r < kRowsEach; ++r) {
    const std::int64_t row = tile.row + warp_index() + r * kWarpsPerBlock;
    if (row >= m.rows) continue;
    float x[kEach];
    load_row<kItems>(m, row, tile.column, x);
    if constexpr (kRaises) raise_each(x, mine);
    Pack<Code, kEach> out;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t column = min(tile.column + column_of<kItems>(i), m.columns - 1);
      out.set(i, scaling.saturated(__fdiv_rn(x[i], scales[m.block(row, column)])));
    }
    store_row<kItems>(out, codes, m.columns, row, tile.column);
  }
  if constexpr (kRaises) raise_block(m, tile, mine, largest);
}

// Writes codes[column, row]: a tile goes through shared memory, so that stores are coalesced, too.
template <bool kRaises, int kItems, class T, class Code>
__global__ void __launch_bounds__(kBlockThreads)
    encode_transposed_kernel(Matrix<T> m, const float* scales, Scaling scaling, std::uint32_t* largest, Code* codes) {
  __shared__ std::uint8_t turned[kTile][kTile + 4];
  const TileOrigin tile = tile_origin(m.columns);
  std::uint32_t mine[kEach] = {};
#pragma unroll
  for (int r = 0; r < kRowsEach; ++r) {
    const int tile_row = warp_index() + r * kWarpsPerBlock;
    const std::int64_t row = min(tile.row + tile_row, m.rows - 1);
    float x[kEach];
    load_row<kItems>(m, tile.row + tile_row, tile.column, x);
    if constexpr (kRaises) raise_each(x, mine);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int tile_column = column_of<kItems>(i);
      const std::int64_t column = min(tile.column + tile_column, m.columns - 1);
      const float code = scaling.saturated(__fdiv_rn(x[i], scales[m.block(row, column)]));
      turned[tile_column][tile_row] = from_f32<Code>(code).bits;
    }
  }
  if constexpr (kRaises) raise_block(m, tile, mine, largest);
  __syncthreads();
  for (int tile_column = warp_index(); tile_column < kTile; tile_column += kWarpsPerBlock) {
    const std::int64_t column = tile.column + tile_column;
    if (column >= m.columns) continue;
    for (int tile_row = lane_index(); tile_row < kTile; tile_row += kWarpLanes) {
      const std::int64_t row = tile.row + tile_row;
      if (row < m.rows) codes[column * m.rows + row] = Code{turned[tile_column][tile_row]};
    }
  }
}

template <int kItems, class Code, class T>
__global__ void __launch_bounds__(kBlockThreads) decode_kernel(Matrix<Code> m, const float* scales, T* y) {
  const TileOrigin tile = tile_origin(m.columns);
#pragma unroll
  for (int r = 0; r < kRowsEach; ++r) {
    const std::int64_t row = tile.row + warp_index() + r * kWarpsPerBlock;
    if (row >= m.rows) continue;
    float codes[kEach];
    load_row<kItems>(m, row, tile.column, codes);
    Pack<T, kEach> out;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const std::int64_t column = min(tile.column + column_of<kItems>(i), m.columns - 1);
      out.set(i, codes[i] * scales[m.block(row, column)]);
    }
    store_row<kItems>(out, y, m.columns, row, tile.column);
  }
}

template <class T>
Matrix<T> matrix_of(const ScaleGrid& grid, const T* x, bool transposed) {
  if (!transposed) return {x, grid.rows, grid.columns, grid.block_rows, grid.block_columns, grid.across(), 1};
  return {x, grid.columns, grid.rows, grid.block_columns, grid.block_rows, 1, grid.across()};
}

template <class T>
LaunchShape tiles_of(const Matrix<T>& m) {
  return {.blocks = (m.rows + kTile - 1) / kTile * ((m.columns + kTile - 1) / kTile)};
}

// Calls visit(std::integral_constant<int, items>): kEach if rows of all matrices may be accessed in packs.
template <class Visit>
void with_row_items(std::size_t widest_bytes, std::int64_t columns, std::initializer_list<const void*> operands,
                    Visit&& visit) {
  const std::size_t pack_bytes = widest_bytes * kEach;
  bool packs = columns % kEach == 0;
  for (const void* operand : operands) packs = packs && reinterpret_cast<std::uintptr_t>(operand) % pack_bytes == 0;
  if (packs) return visit(std::integral_constant<int, kEach>{});
  visit(std::integral_constant<int, 1>{});
}

// Returns whether each tile has one scale.
template <class T>
bool shares_all(const Matrix<T>& m) {
  return m.block_rows != 1 && m.block_columns != 1;
}

template <int kItems, class T>
void queue_largest(const Matrix<T>& m, const float* known, std::uint32_t* largest, CudaContext& cuda) {
  auto* const kernel = m.block_rows == 1      ? largest_kernel<Share::row, kItems, T>
                       : m.block_columns == 1 ? largest_kernel<Share::column, kItems, T>
                                              : largest_kernel<Share::all, kItems, T>;
  launch(cuda, "fp8_encode", tiles_of(m), kernel, m, known, largest);
}

template <bool kRaises, int kItems, class T, class Code>
void queue_codes(const Fp8Encode& args, const Matrix<T>& m, Scaling scaling, std::uint32_t* largest,
                 CudaContext& cuda) {
  auto* const kernel =
      args.transposed ? encode_transposed_kernel<kRaises, kItems, T, Code> : encode_kernel<kRaises, kItems, T, Code>;
  launch(cuda, "fp8_encode", tiles_of(m), kernel, m, static_cast<const float*>(args.scales.as<float>()), scaling,
         largest, args.codes.as<Code>());
}

template <class Visit>
void with_cuda_code_type(core::DType dtype, Visit&& visit) {
  if (dtype == core::DType::f8e4m3) return visit(CudaE4M3{});
  visit(CudaE5M2{});
}

}  // namespace

void run_cuda(const Fp8Encode& args, CudaContext& cuda) {
  float* const largest = args.delayed ? args.raised.as<float>() : args.largest.as<float>();
  const std::int64_t blocks = args.blocks();
  if (!args.delayed) {
    core::check_cuda(cudaMemsetAsync(largest, 0, size_bytes(core::DType::f32, blocks), stream_of(cuda)),
                     "cudaMemsetAsync", cuda.place());
  }
  const Scaling scaling{top_exponent(args.to), largest_number(args.to)};
  const float* const previous = args.delayed ? args.previous.as<float>() : largest;
  auto* const scales = args.scales.as<float>();
  with_cuda_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Matrix<T> m = matrix_of(scale_grid(args.per, args.rows, args.columns), args.x.as<T>(), args.transposed);
    with_row_items(sizeof(T), m.columns, {args.x.data, args.transposed ? nullptr : args.codes.data}, [&](auto items) {
      constexpr int kItems = decltype(items)::value;
      const bool raises = args.delayed && shares_all(m);  // x is read once if there is history
      auto* const bits = reinterpret_cast<std::uint32_t*>(largest);
      queue_largest<kItems>(m, raises ? previous : nullptr, bits, cuda);
      launch(cuda, "fp8_encode", {.blocks = (blocks + kBlockThreads - 1) / kBlockThreads}, scales_kernel, previous,
             static_cast<const float*>(largest), scaling, blocks, scales);
      with_cuda_code_type(args.to, [&](auto code) {
        using Code = decltype(code);
        raises ? queue_codes<true, kItems, T, Code>(args, m, scaling, bits, cuda)
               : queue_codes<false, kItems, T, Code>(args, m, scaling, bits, cuda);
      });
    });
  });
}

void run_cuda(const Fp8Decode& args, CudaContext& cuda) {
  with_cuda_code_type(args.from, [&](auto code) {
    with_cuda_activation_type(args.y.dtype, [&](auto zero) {
      using Code = decltype(code);
      using T = decltype(zero);
      const Matrix<Code> m = matrix_of(scale_grid(args.per, args.rows, args.columns), args.codes.as<Code>(), false);
      with_row_items(sizeof(T), m.columns, {args.codes.data, args.y.data}, [&](auto items) {
        constexpr int kItems = decltype(items)::value;
        launch(cuda, "fp8_decode", tiles_of(m), decode_kernel<kItems, Code, T>, m, args.scales.as<float>(),
               args.y.as<T>());
      });
    });
  });
}

}  // namespace lockstep::kernels
