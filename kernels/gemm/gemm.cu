#include "kernels/gemm/gemm.h"

#include <algorithm>

#include "kernels/activation/gelu_math.cuh"
#include "kernels/base/cuda_column_parts.cuh"
#include "kernels/base/cuda_context.h"
#include "kernels/base/cuda_geometry.h"
#include "kernels/base/cuda_loops.cuh"
#include "kernels/gemm/gemm_cuda.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {
namespace {

// A product whose finish is a store or an addition.
void run_plain(const Product& product, void* cublaslt_workspace, CudaContext& cuda) {
  if (!cuda.kept<CublasltGemm>().run(product, cublaslt_workspace)) queue_plain_product(product, cuda);
}

// Runs the finish as a separate kernel on sums in f32, so that nothing is rounded twice.
void run_unfused(const Product& product, CudaContext& cuda) {
  const bool in_place = product.c.dtype == core::DType::f32;
  WorkspacePlan plan;
  const std::size_t for_cublaslt = plan.add(kCublasltWorkspaceBytes);
  const std::size_t for_sums = plan.add(in_place ? 0 : size_bytes(core::DType::f32, product.m * product.n));
  auto* const memory = static_cast<std::byte*>(cuda.workspace(plan.total_bytes()));
  Product sums = product;
  sums.c = {.data = in_place ? product.c.data : memory + for_sums, .dtype = core::DType::f32, .row_stride = product.n};
  run_plain(sums, memory + for_cublaslt, cuda);
  queue_finish(sums.c.as<float>(), product, cuda);
}

}  // namespace

void queue_product(const Product& product, CudaContext& cuda) {
  if (cuda.kept<CublasltGemm>().run(product, cuda.workspace(kCublasltWorkspaceBytes))) return;
  if (product.c.finish == Finish::store || product.c.finish == Finish::add) {
    queue_plain_product(product, cuda);
  } else {
    run_unfused(product, cuda);
  }
}

void run_cuda(const GemmForward& args, CudaContext& cuda) {
  queue_product(product_of(args), cuda);
}

void run_cuda(const GemmInputGradient& args, CudaContext& cuda) {
  queue_product(product_of(args), cuda);
}

void run_cuda(const GemmBatched& args, CudaContext& cuda) {
  queue_product(product_of(args), cuda);
}

// cuBLASLt can sum dy in the same pass (CUBLASLT_EPILOGUE_BGRADB), but cannot add to existing values, as dbias
// requires.
void run_cuda(const GemmWeightGradient& args, CudaContext& cuda) {
  const GemmShape& s = args.shape;
  WorkspacePlan plan;
  const std::size_t for_cublaslt = plan.add(kCublasltWorkspaceBytes);
  const std::size_t for_sums = plan.add(args.with_bias ? column_sums_bytes(s.rows, s.outputs, cuda) : 0);
  auto* const memory = static_cast<std::byte*>(cuda.workspace(plan.total_bytes()));
  run_plain(product_of(args), memory + for_cublaslt, cuda);
  if (!args.with_bias) return;
  queue_column_sums(rows_of(args.dy, s.outputs), s.rows, s.outputs, args.dbias.as<float>(), memory + for_sums, cuda);
}

namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// ---- a product in tiles of c: each thread has 4 x 4 elements, 16 apart, so that adjacent threads read adjacent
// elements

constexpr int kTile = 64;   // rows and columns of c per block
constexpr int kDepth = 16;  // depths at a time
constexpr int kSide = 16;   // threads along each side
constexpr int kEach = kTile / kSide;
static_assert(kSide * kSide == kBlockThreads);

// Copies element(row, column) of [kRows, kColumns] into shared memory as f32, or zero if `inside` is false.
template <class T>
struct FactorTile {
  const T* data;
  std::int64_t row_stride;
  std::int64_t column_stride;
  std::int64_t rows;
  std::int64_t columns;

  __device__ float at(std::int64_t row, std::int64_t column) const {
    return row < rows && column < columns ? to_f32(data[row * row_stride + column * column_stride]) : 0.0F;
  }
};

template <class T>
__device__ FactorTile<T> factor_of(const Factor& f, std::int64_t rows, std::int64_t columns, std::int64_t batch) {
  return {static_cast<const T*>(f.data) + batch * f.batch_stride, f.row_stride, f.column_stride, rows, columns};
}

template <class T, class Result>
__device__ void write_tile(const Product& p, std::int64_t batch, std::int64_t row0, std::int64_t column0,
                           const float (&sums)[kEach][kEach]) {
  Result* const c = static_cast<Result*>(p.c.data) + batch * p.c.batch_stride;
  for (int i = 0; i < kEach; ++i) {
    for (int j = 0; j < kEach; ++j) {
      const std::int64_t row = row0 + i * kSide;
      const std::int64_t column = column0 + j * kSide;
      if (row >= p.m || column >= p.n) continue;
      Result& at = c[row * p.c.row_stride + column];
      at = from_f32<Result>(p.c.finish == Finish::add ? to_f32(at) + sums[i][j] : p.c.alpha * sums[i][j]);
    }
  }
}

template <class T, class Result>
__global__ void __launch_bounds__(kBlockThreads) plain_product_kernel(Product p) {
  __shared__ float a_tile[kDepth][kTile + 1];
  __shared__ float b_tile[kDepth][kTile + 1];
  const std::int64_t tiles_n = (p.n + kTile - 1) / kTile;
  const std::int64_t tiles_m = (p.m + kTile - 1) / kTile;
  const std::int64_t tile = blockIdx.x;
  const std::int64_t batch = tile / (tiles_m * tiles_n);
  const std::int64_t row0 = tile / tiles_n % tiles_m * kTile;
  const std::int64_t column0 = tile % tiles_n * kTile;
  const auto a = factor_of<T>(p.a, p.m, p.k, batch);
  const auto b = factor_of<T>(p.b, p.k, p.n, batch);
  const int thread = static_cast<int>(threadIdx.x);
  const int y = thread / kSide;
  const int x = thread % kSide;
  float sums[kEach][kEach] = {};
  for (std::int64_t k0 = 0; k0 < p.k; k0 += kDepth) {
    for (int e = thread; e < kTile * kDepth; e += kBlockThreads) {
      a_tile[e % kDepth][e / kDepth] = a.at(row0 + e / kDepth, k0 + e % kDepth);
      b_tile[e / kTile][e % kTile] = b.at(k0 + e / kTile, column0 + e % kTile);
    }
    __syncthreads();
    for (int d = 0; d < kDepth; ++d) {
      for (int i = 0; i < kEach; ++i) {
        for (int j = 0; j < kEach; ++j) sums[i][j] += a_tile[d][y + i * kSide] * b_tile[d][x + j * kSide];
      }
    }
    __syncthreads();
  }
  write_tile<T, Result>(p, batch, row0 + y, column0 + x, sums);
}

template <class T, class Result>
void launch_plain_product(const Product& p, CudaContext& cuda) {
  const LaunchShape shape{.blocks = p.batch * ceil_div(p.m, kTile) * ceil_div(p.n, kTile)};
  launch(cuda, "gemm without cuBLASLt", shape, plain_product_kernel<T, Result>, p);
}

// ---- finishes

// For one dtype of the bias, the pre-activation and c.
template <class T, Finish kFinish>
struct FinishOperation {
  const float* sums;
  const T* other;  // the bias, or the pre-activation that is read
  T* pre_written;
  T* c;
  std::int64_t columns;

  template <int kItems>
  struct Inputs {
    Pack<float, kItems> sums;
    Pack<T, kItems> other;
  };
  template <int kItems>
  __device__ Inputs<kItems> load(std::int64_t first) const {
    const std::int64_t at = kFinish == Finish::times_gelu_slope ? first : first % columns;
    return {Pack<float, kItems>::load(sums + first), Pack<T, kItems>::load(other + at)};
  }
  template <int kItems>
  __device__ void store(std::int64_t first, const Inputs<kItems>& in) const {
    Pack<T, kItems> before;
    Pack<T, kItems> result;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if constexpr (kFinish == Finish::times_gelu_slope) {
        result.set(i, in.sums[i] * gelu_math::gelu_slope(in.other[i]));
      } else {
        const float sum = in.sums[i] + in.other[i];
        before.set(i, sum);
        result.set(i, kFinish == Finish::bias_gelu ? gelu_math::gelu(sum) : sum);
      }
    }
    if constexpr (kFinish == Finish::bias_gelu) before.store(pre_written + first);
    result.store(c + first);
  }
};

template <class T, Finish kFinish>
void run_finish(const float* sums, const Product& p, CudaContext& cuda) {
  const void* const other = kFinish == Finish::times_gelu_slope ? p.c.pre_read : p.c.bias;
  const int items = items_an_access(sizeof(float), p.n, {sums, other, p.c.pre_written, p.c.data});
  const FinishOperation<T, kFinish> operation{sums, static_cast<const T*>(other), static_cast<T*>(p.c.pre_written),
                                              static_cast<T*>(p.c.data), p.n};
  run_elementwise<sizeof(float)>(cuda, "gemm's finish", operation, p.m * p.n, items);
}

// ---- column sums: the threads of a block are 8 rows of 32 packs

constexpr int kSumRows = kBlockThreads / kWarpLanes;

template <class T, int kItems>
__global__ void __launch_bounds__(kBlockThreads)
    partial_column_sums_kernel(const T* x, std::int64_t row_stride, std::int64_t rows, std::int64_t columns,
                               std::int64_t parts, float* partial_sums) {
  constexpr int kColumns = kWarpLanes * kItems;
  __shared__ float sums_of_rows[kSumRows][kColumns];
  const std::int64_t part = blockIdx.x % parts;
  const std::int64_t first = blockIdx.x / parts * kColumns;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kWarpLanes;
  const int row_of_block = thread / kWarpLanes;
  float sums[kItems] = {};
  if (first + lane * kItems < columns) {
    const T* const column = x + first + lane * kItems;
    for_packs<4>(
        part * kSumRows + row_of_block, parts * kSumRows, rows,
        [&](std::int64_t row) { return Pack<T, kItems>::load(column + row * row_stride); },
        [&](std::int64_t, const Pack<T, kItems>& pack) {
#pragma unroll
          for (int i = 0; i < kItems; ++i) sums[i] += pack[i];
        });
  }
#pragma unroll
  for (int i = 0; i < kItems; ++i) sums_of_rows[row_of_block][lane * kItems + i] = sums[i];
  __syncthreads();
  for (int c = thread; c < kColumns && first + c < columns; c += kBlockThreads) {
    float sum = 0;
    for (int row = 0; row < kSumRows; ++row) sum += sums_of_rows[row][c];
    partial_sums[part * columns + first + c] = sum;
  }
}

// Enough for three blocks per multiprocessor (48 KiB in flight), whatever the width of an access, but no more: partial
// sums take memory.
std::int64_t parts_of(std::int64_t rows, std::int64_t columns, const CudaContext& cuda) {
  const std::int64_t blocks_wanted = 3 * cuda.num_multiprocessors();
  const std::int64_t blocks_across = ceil_div(columns, kWarpLanes * 8);
  return std::clamp<std::int64_t>(ceil_div(blocks_wanted, blocks_across), 1, ceil_div(rows, kSumRows));
}

}  // namespace

void queue_plain_product(const Product& product, CudaContext& cuda) {
  with_cuda_activation_type(product.a.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (product.c.dtype == core::DType::f32) {
      launch_plain_product<T, float>(product, cuda);
    } else {
      launch_plain_product<T, T>(product, cuda);
    }
  });
}

void queue_finish(const float* sums, const Product& product, CudaContext& cuda) {
  with_cuda_activation_type(product.c.dtype, [&](auto zero) {
    using T = decltype(zero);
    switch (product.c.finish) {
      case Finish::bias:
        return run_finish<T, Finish::bias>(sums, product, cuda);
      case Finish::bias_gelu:
        return run_finish<T, Finish::bias_gelu>(sums, product, cuda);
      case Finish::times_gelu_slope:
        return run_finish<T, Finish::times_gelu_slope>(sums, product, cuda);
      default:
        LOCKSTEP_CHECK(false, "a finish that needs no kernel");
    }
  });
}

std::size_t column_sums_bytes(std::int64_t rows, std::int64_t columns, const CudaContext& cuda) {
  return sizeof(float) * static_cast<std::size_t>(parts_of(rows, columns, cuda) * columns);
}

void queue_column_sums(const Factor& x, std::int64_t rows, std::int64_t columns, float* out, void* partial_sums,
                       CudaContext& cuda) {
  auto* const partial = static_cast<float*>(partial_sums);
  const std::int64_t parts = parts_of(rows, columns, cuda);
  with_packs(x.dtype, x.row_stride, {x.data}, [&](auto zero, auto items) {
    using T = decltype(zero);
    constexpr int kItems = decltype(items)::value;
    const LaunchShape shape{.blocks = parts * ceil_div(columns, kWarpLanes * kItems)};
    launch(cuda, "gradient of a bias", shape, partial_column_sums_kernel<T, kItems>, x.as<T>(), x.row_stride, rows,
           columns, parts, partial);
  });
  queue_column_parts(cuda, "gradient of a bias", {partial, parts, columns, columns, {out, nullptr}}, 1);
}

}  // namespace lockstep::kernels
