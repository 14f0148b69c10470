// A thread block processes a tile of x, 128 x 128, that consists of whole scale blocks or lies inside of one: a thread
// has four columns of sixteen rows, of which it loads four at once. Positions of scales are computed once for each
// tile.
#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_reductions.cuh"
#include "kernels/fp8/fp8.h"

namespace lockstep::kernels {
namespace {

constexpr int kTile = static_cast<int>(kScaleTile);
constexpr int kEach = kTile / kWarpLanes;  // columns per thread
constexpr int kRowsAtOnce = 4;
constexpr int kRowsOfBlock = kRowsAtOnce * kWarpsPerBlock;  // at once
constexpr std::uint32_t kMagnitude =
    0x7fffffffU;  // mask of a float's magnitude: its bits order like magnitudes, NaN last

// The elements of a tile that share a scale.
enum class Share : std::uint8_t { row, column, all };

// Distances between scales along one dimension of a matrix.
struct ScaleSteps {
  std::int64_t tile;     // from a tile to the next
  std::int64_t element;  // from an element to the next; 0: those of a tile share a scale
};

ScaleSteps scale_steps(std::int64_t extent, std::int64_t block, std::int64_t step) {
  if (block == 1 && extent > 1) return {kTile * step, step};
  return {block == kTile ? step : 0, 0};  // else all share a scale
}

// x, and the positions of its elements' scales.
template <class T>
struct Matrix {
  const T* x;
  std::int64_t rows;
  std::int64_t columns;
  ScaleSteps down;
  ScaleSteps across;

  Share share() const { return down.element != 0 ? Share::row : across.element != 0 ? Share::column : Share::all; }
};

// A block's tile; ends of the matrix may leave it fewer rows and columns.
struct Tile {
  std::int64_t row;
  std::int64_t column;
  int rows;
  int columns;
  std::int64_t scale;  // position of its first element's
};
template <class T>
__device__ __forceinline__ Tile this_tile(const Matrix<T>& m) {
  const auto across = static_cast<unsigned>((m.columns + kTile - 1) / kTile);
  const unsigned down = blockIdx.x / across;
  const unsigned column = blockIdx.x % across;
  const std::int64_t first_row = std::int64_t{down} * kTile;
  const std::int64_t first_column = std::int64_t{column} * kTile;
  return {first_row, first_column, static_cast<int>(min(m.rows - first_row, std::int64_t{kTile})),
          static_cast<int>(min(m.columns - first_column, std::int64_t{kTile})),
          down * m.down.tile + column * m.across.tile};
}

// Calls visit(first) for the rows first to first + kRowsAtOnce - 1 that this thread takes at once.
template <class Visit>
__device__ __forceinline__ void for_row_groups(Visit&& visit) {
#pragma unroll 1
  for (int group = 0; group < kTile; group += kRowsOfBlock) visit(group + warp_index() * kRowsAtOnce);
}

// The thread's column number i of the tile: adjacent columns if a thread loads them at once, else one per adjacent
// lane.
template <int kItems>
__device__ __forceinline__ int column_of(int i) {
  return kItems == kEach ? lane_index() * kEach + i : lane_index() + i * kWarpLanes;
}

// Loads the thread's elements of its rows; 0 past the end of x.
template <int kItems, class T>
__device__ __forceinline__ void load_rows(const Matrix<T>& m, const Tile& tile, int first,
                                          float (&x)[kRowsAtOnce][kEach]) {
  const T* const from = m.x + (tile.row + first) * m.columns + tile.column;
#pragma unroll
  for (int r = 0; r < kRowsAtOnce; ++r) {
    const T* const row = from + r * m.columns;
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[r][i] = 0;
    if (first + r >= tile.rows) continue;
    if constexpr (kItems == kEach) {
      if (column_of<kItems>(0) < tile.columns) Pack<T, kEach>::load(row + column_of<kItems>(0)).widen(x[r]);
    } else {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (column_of<kItems>(i) < tile.columns) x[r][i] = to_f32(row[column_of<kItems>(i)]);
      }
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

// Stores the thread's elements of one row that are inside of the matrix, which has as many columns as m.
template <int kItems, class Of, class T>
__device__ __forceinline__ void store_row(const Pack<T, kEach>& x, T* to, const Matrix<Of>& m, const Tile& tile,
                                          int row) {
  if (row >= tile.rows) return;
  T* const of_row = to + (tile.row + row) * m.columns + tile.column;
  if constexpr (kItems == kEach) {
    if (column_of<kItems>(0) < tile.columns) x.store(of_row + column_of<kItems>(0));
  } else {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (column_of<kItems>(i) < tile.columns) of_row[column_of<kItems>(i)] = x.items[i];
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
__device__ __forceinline__ void raise_block(const Tile& tile, const std::uint32_t (&mine)[kEach],
                                            std::uint32_t* largest) {
  const MaximumBits all = block_reduce(largest_of(mine));
  if (threadIdx.x == 0) atomicMax(largest + tile.scale, all.value);
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
  const Tile tile = this_tile(m);
  if constexpr (kShare == Share::all) {
    if (known != nullptr && is_history(known[tile.scale])) return;
  }
  if (kShare == Share::column) {
    if (threadIdx.x < kTile) of_columns[threadIdx.x] = 0;
    __syncthreads();
  }
  std::uint32_t mine[kEach] = {};
  for_row_groups([&](int first) {
    float x[kRowsAtOnce][kEach];
    load_rows<kItems>(m, tile, first, x);
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if constexpr (kShare == Share::row) {
        std::uint32_t each[kEach] = {};
        raise_each(x[r], each);
        const MaximumBits of_row = warp_reduce(largest_of(each));
        if (lane_index() == 0 && first + r < tile.rows) {
          atomicMax(largest + tile.scale + (first + r) * m.down.element, of_row.value);
        }
      } else {
        raise_each(x[r], mine);
      }
    }
  });
  if constexpr (kShare == Share::column) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) atomicMax(of_columns + column_of<kItems>(i), mine[i]);
    __syncthreads();
    const auto column = static_cast<int>(threadIdx.x);
    if (column < tile.columns) atomicMax(largest + tile.scale + column * m.across.element, of_columns[column]);
  }
  if constexpr (kShare == Share::all) raise_block(tile, mine, largest);
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
  // Exact, so that a product with it is the quotient: 1 / 2^p has the exponent bits 254 - (p + 127).
  __device__ __forceinline__ static float inverse(float scale) {
    return isnan(scale) ? scale : __uint_as_float(0x7f000000U - __float_as_uint(scale));
  }
  __device__ __forceinline__ float saturated(float x) const {
    return fabsf(x) > largest_number && isfinite(x) ? copysignf(largest_number, x) : x;
  }
  // The hardware converts two numbers at once and saturates, infinity and NaN included, which must stay visible.
  template <class Code>
  __device__ __forceinline__ Pack<Code, kEach> codes(const float (&x)[kEach]) const {
    Pack<Code, kEach> codes;
    float sum = 0;  // stays 0; NaN if an element is not finite
#pragma unroll
    for (int i = 0; i < kEach; ++i) sum = fmaf(x[i], 0.0F, sum);
    if (sum == 0) {
#pragma unroll
      for (int i = 0; i < kEach; i += 2) {
        reinterpret_cast<std::uint16_t*>(codes.items)[i / 2] = Code::two_saturated(x[i], x[i + 1]);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kEach; ++i) codes.set(i, saturated(x[i]));
    }
    return codes;
  }
};

// Computes the scales of all blocks before codes are made with them.
__global__ void __launch_bounds__(kBlockThreads)
    scales_kernel(const float* previous, const float* now, Scaling scaling, std::int64_t blocks, float* scales) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (i >= blocks) return;
  scales[i] = scaling.scale(is_history(previous[i]) ? previous[i] : now[i]);
}

// Multiplies a thread's elements by their scales, or by the inverses of these: by a factor of the row, or of the tile,
// and by one of the column, at least one of which is 1.
template <bool kInverse, int kItems>
class Factors {
 public:
  template <class T>
  __device__ __forceinline__ Factors(const Matrix<T>& m, const Tile& tile, const float* scales)
      : scales_(scales + tile.scale), step_(m.down.element), last_row_(tile.rows - 1) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) of_columns_[i] = 1;
    if (m.across.element == 0) {
      of_tile_ = factor(scales_[0]);
      return;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      of_columns_[i] = factor(scales_[min(column_of<kItems>(i), tile.columns - 1) * m.across.element]);
    }
  }
  __device__ __forceinline__ void multiply(int row, float (&x)[kEach]) const {
    const float of_row = step_ == 0 ? of_tile_ : factor(scales_[min(row, last_row_) * step_]);
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] *= of_row * of_columns_[i];
  }

 private:
  __device__ __forceinline__ static float factor(float scale) {
    return kInverse ? Scaling::inverse(scale) : scale;
  }

  const float* scales_;
  std::int64_t step_;
  int last_row_;
  float of_tile_ = 1;
  float of_columns_[kEach];
};

// kRaises: also finds the tile's maximum in the same pass, for delayed scaling, whose scales are known before it.
template <bool kRaises, int kItems, class T, class Code>
__global__ void __launch_bounds__(kBlockThreads)
    encode_kernel(Matrix<T> m, const float* scales, Scaling scaling, std::uint32_t* largest, Code* codes) {
  const Tile tile = this_tile(m);
  const Factors<true, kItems> factors(m, tile, scales);
  std::uint32_t mine[kEach] = {};
  for_row_groups([&](int first) {
    float x[kRowsAtOnce][kEach];
    load_rows<kItems>(m, tile, first, x);
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if constexpr (kRaises) raise_each(x[r], mine);
      factors.multiply(first + r, x[r]);
      store_row<kItems>(scaling.codes<Code>(x[r]), codes, m, tile, first + r);
    }
  });
  if constexpr (kRaises) raise_block(tile, mine, largest);
}

// Writes codes[column, row]: a tile goes through shared memory, in words of four rows, so that stores are coalesced,
// too. They are of 16 bytes if `wide`: if rows of codes begin at multiples of 16 bytes.
template <bool kRaises, int kItems, class T, class Code>
__global__ void __launch_bounds__(kBlockThreads)
    encode_transposed_kernel(Matrix<T> m, const float* scales, Scaling scaling, std::uint32_t* largest, Code* codes,
                             bool wide) {
  static_assert(kRowsAtOnce == sizeof(std::uint32_t));
  __shared__ std::uint32_t turned[kTile][kTile / kRowsAtOnce + 1];
  const Tile tile = this_tile(m);
  const Factors<true, kItems> factors(m, tile, scales);
  std::uint32_t mine[kEach] = {};
  for_row_groups([&](int first) {
    float x[kRowsAtOnce][kEach];
    load_rows<kItems>(m, tile, first, x);
    std::uint32_t words[kEach] = {};
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if constexpr (kRaises) raise_each(x[r], mine);
      factors.multiply(first + r, x[r]);
      const Pack<Code, kEach> of_row = scaling.codes<Code>(x[r]);
#pragma unroll
      for (int i = 0; i < kEach; ++i) words[i] |= std::uint32_t{of_row.items[i].bits} << (8 * r);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) turned[column_of<kItems>(i)][first / kRowsAtOnce] = words[i];
  });
  if constexpr (kRaises) raise_block(tile, mine, largest);
  __syncthreads();
  Code* const to = codes + tile.column * m.rows + tile.row;
  if (wide) {
    constexpr int kWords = static_cast<int>(kAccessBytes / sizeof(std::uint32_t));
    constexpr int kAccesses = kTile / static_cast<int>(kAccessBytes);  // accesses per column
    for (auto at = static_cast<int>(threadIdx.x); at < tile.columns * kAccesses; at += kBlockThreads) {
      const int row = at % kAccesses * static_cast<int>(kAccessBytes);
      Pack<std::uint32_t, kWords> of_rows;
#pragma unroll
      for (int k = 0; k < kWords; ++k) of_rows.items[k] = turned[at / kAccesses][row / kRowsAtOnce + k];
      if (row < tile.rows) of_rows.store(reinterpret_cast<std::uint32_t*>(to + at / kAccesses * m.rows + row));
    }
  } else {
    for (int column = warp_index(); column < tile.columns; column += kWarpsPerBlock) {
      const auto* const of_rows = reinterpret_cast<const Code*>(turned[column]);
      for (int row = lane_index(); row < tile.rows; row += kWarpLanes) to[column * m.rows + row] = of_rows[row];
    }
  }
}

template <int kItems, class Code, class T>
__global__ void __launch_bounds__(kBlockThreads) decode_kernel(Matrix<Code> m, const float* scales, T* y) {
  const Tile tile = this_tile(m);
  const Factors<false, kItems> factors(m, tile, scales);
  for_row_groups([&](int first) {
    float x[kRowsAtOnce][kEach];
    load_rows<kItems>(m, tile, first, x);
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      factors.multiply(first + r, x[r]);
      Pack<T, kEach> out;
#pragma unroll
      for (int i = 0; i < kEach; ++i) out.set(i, x[r][i]);
      store_row<kItems>(out, y, m, tile, first + r);
    }
  });
}

template <class T>
Matrix<T> matrix_of(const ScaleGrid& grid, const T* x, bool transposed) {
  const ScaleSteps of_rows = scale_steps(grid.rows, grid.block_rows, grid.across());
  const ScaleSteps of_columns = scale_steps(grid.columns, grid.block_columns, 1);
  if (!transposed) return {x, grid.rows, grid.columns, of_rows, of_columns};
  return {x, grid.columns, grid.rows, of_columns, of_rows};
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

template <int kItems, class T>
void queue_largest(const Matrix<T>& m, const float* known, std::uint32_t* largest, CudaContext& cuda) {
  const Share share = m.share();
  auto* const kernel = share == Share::row      ? largest_kernel<Share::row, kItems, T>
                       : share == Share::column ? largest_kernel<Share::column, kItems, T>
                                                : largest_kernel<Share::all, kItems, T>;
  launch(cuda, "fp8_encode", tiles_of(m), kernel, m, known, largest);
}

template <bool kRaises, int kItems, class T, class Code>
void queue_codes(const Fp8Encode& args, const Matrix<T>& m, Scaling scaling, std::uint32_t* largest,
                 CudaContext& cuda) {
  const auto* const scales = args.scales.as<float>();
  auto* const codes = args.codes.as<Code>();
  if (!args.transposed) {
    return launch(cuda, "fp8_encode", tiles_of(m), encode_kernel<kRaises, kItems, T, Code>, m, scales, scaling, largest,
                  codes);
  }
  const bool wide = items_an_access(sizeof(Code), m.rows, {codes}) > 1;
  launch(cuda, "fp8_encode_transposed", tiles_of(m), encode_transposed_kernel<kRaises, kItems, T, Code>, m, scales,
         scaling, largest, codes, wide);
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
      const bool raises = args.delayed && m.share() == Share::all;  // x is read once if there is history
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
