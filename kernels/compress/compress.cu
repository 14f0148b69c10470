#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/base/cuda_loops.cuh"
#include "kernels/compress/compress.h"

namespace lockstep::kernels {
namespace {

struct Signs {
  std::int64_t count;
  std::int64_t block;
  std::int64_t blocks;
};

LaunchShape launch_shape(const Signs& signs, const CudaContext& cuda) {
  return {.blocks = grid_blocks((signs.blocks + kWarpsPerBlock - 1) / kWarpsPerBlock, cuda.num_multiprocessors())};
}

// One warp per block of elements; in each iteration it encodes 32 elements to four bytes of codes.
__global__ void __launch_bounds__(kBlockThreads)
    encode_kernel(Signs signs, const float* x, std::uint8_t* codes, float* scales) {
  for_warp_rows(signs.blocks, [&](std::int64_t b) {
    const std::int64_t begin = b * signs.block;
    const std::int64_t length = min(signs.block, signs.count - begin);
    Sum sum;
    for (std::int64_t first = 0; first < length; first += kWarpLanes) {
      const std::int64_t i = first + lane_index();
      const float value = i < length ? x[begin + i] : 0.0F;
      sum.value += fabsf(value);
      const std::uint32_t bits = __ballot_sync(kAllLanes, (__float_as_uint(value) >> 31) != 0);
      const std::int64_t byte = first / 8 + lane_index();
      if (lane_index() < kWarpLanes / 8 && byte * 8 < length) {
        codes[begin / 8 + byte] = static_cast<std::uint8_t>(bits >> (8 * lane_index()));
      }
    }
    const float whole = warp_reduce(sum).value;
    if (lane_index() == 0) scales[b] = isfinite(whole) ? __fdiv_rn(whole, static_cast<float>(length)) : not_a_number();
  });
}

__global__ void __launch_bounds__(kBlockThreads)
    decode_kernel(Signs signs, const std::uint8_t* codes, const float* scales, float* y) {
  for_warp_rows(signs.blocks, [&](std::int64_t b) {
    const std::int64_t begin = b * signs.block;
    const std::int64_t length = min(signs.block, signs.count - begin);
    const float scale = scales[b];
    for (std::int64_t i = lane_index(); i < length; i += kWarpLanes) {
      const bool negative = (codes[(begin + i) / 8] >> (i % 8) & 1) != 0;
      y[begin + i] = negative ? -scale : scale;
    }
  });
}

}  // namespace

void run_cuda(const EncodeSigns& args, CudaContext& cuda) {
  const Signs signs{args.count, args.block, args.blocks()};
  launch(cuda, "encode_signs", launch_shape(signs, cuda), encode_kernel, signs, args.x.as<float>(),
         args.codes.as<std::uint8_t>(), args.scales.as<float>());
}

void run_cuda(const DecodeSigns& args, CudaContext& cuda) {
  const Signs signs{args.count, args.block, args.blocks()};
  launch(cuda, "decode_signs", launch_shape(signs, cuda), decode_kernel, signs, args.codes.as<std::uint8_t>(),
         args.scales.as<float>(), args.y.as<float>());
}

// The k-th largest key is found digit by digit, from the highest, by histograms of the digits of keys with the same
// higher digits (radix select: Alabi et al. 2012, Fast K-selection Algorithms for Graphics Processors, ACM JEA 17).
// Then warps count the larger and the equal keys in their tiles, which determines where each warp's elements go.

namespace {

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kDigitsPerKey = 4;
constexpr std::int64_t kTile = 4096;  // elements per warp
static_assert(kDigits == kBlockThreads);

// The known digits of the k-th largest key.
struct Search {
  std::uint32_t key;        // its digits so far, the others 0
  std::uint32_t remaining;  // how many elements with these digits are wanted
};

struct Workspace {
  Search* search;
  std::uint32_t* histograms;  // [kDigitsPerKey][kDigits]
  std::uint32_t* larger;      // [tiles], first counts, then the offset of each tile's elements
  std::uint32_t* equal;       // [tiles], likewise
};

__device__ __forceinline__ std::uint32_t key_of(float x) {
  return __float_as_uint(x) & 0x7fffffffU;
}

__global__ void __launch_bounds__(kBlockThreads)
    begin_kernel(Search* search, std::uint32_t* histograms, std::uint32_t k) {
  for (int digit = 0; digit < kDigitsPerKey; ++digit) histograms[digit * kDigits + static_cast<int>(threadIdx.x)] = 0;
  if (threadIdx.x == 0) *search = {0, k};
}

// Counts digits of keys whose bits above the digit equal the search's.
__global__ void __launch_bounds__(kBlockThreads)
    histogram_kernel(const float* x, std::int64_t count, int shift, const Search* search, std::uint32_t* histogram) {
  __shared__ std::uint32_t counts[kDigits];
  counts[threadIdx.x] = 0;
  __syncthreads();
  const std::uint64_t wanted = std::uint64_t{search->key} >> (shift + kDigitBits);
  const std::int64_t stride = std::int64_t{gridDim.x} * kBlockThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < count; i += stride) {
    const std::uint32_t key = key_of(x[i]);
    if (std::uint64_t{key} >> (shift + kDigitBits) == wanted) {
      atomicAdd(&counts[key >> shift & (kDigits - 1)], std::uint32_t{1});
    }
  }
  __syncthreads();
  if (counts[threadIdx.x] != 0) atomicAdd(&histogram[threadIdx.x], counts[threadIdx.x]);
}

// One thread: there are few digits. With the last digit, a key below `floor` is replaced by the key before `floor`, of
// which none is wanted.
__global__ void choose_kernel(const std::uint32_t* histogram, int shift, std::uint32_t floor, Search* search) {
  std::uint32_t remaining = search->remaining;
  int digit = kDigits - 1;
  for (; digit > 0 && histogram[digit] < remaining; --digit) remaining -= histogram[digit];
  search->key |= static_cast<std::uint32_t>(digit) << shift;
  search->remaining = remaining;
  if (shift == 0 && search->key < floor) *search = {floor - 1, 0};
}

struct Tiles {
  std::int64_t count;
  std::int64_t tiles;
};

// Calls visit(i, key) in every lane for 32 elements at a time; i is at least `count` in lanes without an element.
template <class Visit>
__device__ __forceinline__ void for_tile(const float* x, const Tiles& tiles, std::int64_t tile, Visit&& visit) {
  const std::int64_t end = min(tiles.count, (tile + 1) * kTile);
  for (std::int64_t first = tile * kTile; first < end; first += kWarpLanes) {
    const std::int64_t i = first + lane_index();
    visit(i < end ? i : tiles.count, i < end ? key_of(x[i]) : 0U);
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    count_kernel(const float* x, Tiles tiles, const Search* search, std::uint32_t* larger, std::uint32_t* equal) {
  const std::uint32_t kth = search->key;
  for_warp_rows(tiles.tiles, [&](std::int64_t tile) {
    std::uint32_t more = 0;
    std::uint32_t same = 0;
    for_tile(x, tiles, tile, [&](std::int64_t i, std::uint32_t key) {
      more += static_cast<std::uint32_t>(__popc(__ballot_sync(kAllLanes, i < tiles.count && key > kth)));
      same += static_cast<std::uint32_t>(__popc(__ballot_sync(kAllLanes, i < tiles.count && key == kth)));
    });
    if (lane_index() == 0) {
      larger[tile] = more;
      equal[tile] = same;
    }
  });
}

// Replaces counts by the sums of the counts before them; one block, whose threads have consecutive tiles.
__global__ void __launch_bounds__(kBlockThreads)
    sum_kernel(std::int64_t tiles, std::uint32_t* larger, std::uint32_t* equal) {
  __shared__ std::uint32_t more_of[kBlockThreads];
  __shared__ std::uint32_t same_of[kBlockThreads];
  const std::int64_t begin = tiles * threadIdx.x / kBlockThreads;
  const std::int64_t end = tiles * (threadIdx.x + 1) / kBlockThreads;
  std::uint32_t more = 0;
  std::uint32_t same = 0;
  for (std::int64_t tile = begin; tile < end; ++tile) {
    more += larger[tile];
    same += equal[tile];
  }
  more_of[threadIdx.x] = more;
  same_of[threadIdx.x] = same;
  __syncthreads();
  more = 0;
  same = 0;
  for (unsigned thread = 0; thread < threadIdx.x; ++thread) {
    more += more_of[thread];
    same += same_of[thread];
  }
  for (std::int64_t tile = begin; tile < end; ++tile) {
    const std::uint32_t more_here = larger[tile];
    const std::uint32_t same_here = equal[tile];
    larger[tile] = more;
    equal[tile] = same;
    more += more_here;
    same += same_here;
  }
}

__global__ void __launch_bounds__(kBlockThreads) clear_kernel(std::int64_t k, float* values, std::int32_t* indices) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kBlockThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < k; i += stride) {
    values[i] = 0;
    indices[i] = -1;
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    write_kernel(const float* x, Tiles tiles, const Search* search, const std::uint32_t* larger,
                 const std::uint32_t* equal, float* values, std::int32_t* indices) {
  const std::uint32_t kth = search->key;
  const std::uint32_t wanted = search->remaining;
  const unsigned lanes_before = (1U << lane_index()) - 1;
  for_warp_rows(tiles.tiles, [&](std::int64_t tile) {
    std::uint32_t more = larger[tile];
    std::uint32_t same = equal[tile];
    for_tile(x, tiles, tile, [&](std::int64_t i, std::uint32_t key) {
      const bool is_more = i < tiles.count && key > kth;
      const bool is_same = i < tiles.count && key == kth;
      const unsigned all_more = __ballot_sync(kAllLanes, is_more);
      const unsigned all_same = __ballot_sync(kAllLanes, is_same);
      const std::uint32_t same_before = same + static_cast<std::uint32_t>(__popc(all_same & lanes_before));
      if (is_more || (is_same && same_before < wanted)) {
        const std::uint32_t more_before = more + static_cast<std::uint32_t>(__popc(all_more & lanes_before));
        const std::uint32_t to = more_before + min(same_before, wanted);
        values[to] = x[i];
        indices[to] = static_cast<std::int32_t>(i);
      }
      more += static_cast<std::uint32_t>(__popc(all_more));
      same += static_cast<std::uint32_t>(__popc(all_same));
    });
  });
}

__global__ void __launch_bounds__(kBlockThreads)
    scatter_kernel(std::int64_t k, const float* values, const std::int32_t* indices, float* y) {
  const std::int64_t stride = std::int64_t{gridDim.x} * kBlockThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x; i < k; i += stride) {
    if (indices[i] >= 0) y[indices[i]] += values[i];
  }
}

Workspace workspace_for(std::int64_t tiles, CudaContext& cuda) {
  constexpr std::size_t kHistograms = sizeof(std::uint32_t) * kDigits * kDigitsPerKey;
  auto* const memory = static_cast<std::byte*>(
      cuda.workspace(kHistograms + 2 * sizeof(std::uint32_t) * static_cast<std::size_t>(tiles) + sizeof(Search)));
  Workspace workspace{};
  workspace.histograms = reinterpret_cast<std::uint32_t*>(memory);
  workspace.larger = reinterpret_cast<std::uint32_t*>(memory + kHistograms);
  workspace.equal = workspace.larger + tiles;
  workspace.search = reinterpret_cast<Search*>(workspace.equal + tiles);
  return workspace;
}

LaunchShape elements_shape(std::int64_t count, const CudaContext& cuda) {
  return {.blocks = grid_blocks((count + kBlockThreads - 1) / kBlockThreads, cuda.num_multiprocessors())};
}

}  // namespace

void run_cuda(const TopK& args, CudaContext& cuda) {
  const Tiles tiles{args.count, (args.count + kTile - 1) / kTile};
  const Workspace memory = workspace_for(tiles.tiles, cuda);
  const auto* const x = args.x.as<float>();
  auto* const values = args.values.as<float>();
  auto* const indices = args.indices.as<std::int32_t>();
  launch(cuda, "top_k", {.blocks = 1}, begin_kernel, memory.search, memory.histograms,
         static_cast<std::uint32_t>(args.k));
  for (int digit = 0; digit < kDigitsPerKey; ++digit) {
    const int shift = (kDigitsPerKey - 1 - digit) * kDigitBits;
    std::uint32_t* const histogram = memory.histograms + digit * kDigits;
    launch(cuda, "top_k", elements_shape(args.count, cuda), histogram_kernel, x, args.count, shift, memory.search,
           histogram);
    launch(cuda, "top_k", {.blocks = 1, .threads = 1}, choose_kernel, histogram, shift, magnitude_key(args.at),
           memory.search);
  }
  const LaunchShape warps{
      .blocks = grid_blocks((tiles.tiles + kWarpsPerBlock - 1) / kWarpsPerBlock, cuda.num_multiprocessors())};
  launch(cuda, "top_k", warps, count_kernel, x, tiles, memory.search, memory.larger, memory.equal);
  launch(cuda, "top_k", {.blocks = 1}, sum_kernel, tiles.tiles, memory.larger, memory.equal);
  launch(cuda, "top_k", elements_shape(args.k, cuda), clear_kernel, args.k, values, indices);
  launch(cuda, "top_k", warps, write_kernel, x, tiles, memory.search, memory.larger, memory.equal, values, indices);
}

void run_cuda(const ScatterAdd& args, CudaContext& cuda) {
  launch(cuda, "scatter_add", elements_shape(args.k, cuda), scatter_kernel, args.k, args.values.as<float>(),
         args.indices.as<std::int32_t>(), args.y.as<float>());
}

}  // namespace lockstep::kernels
