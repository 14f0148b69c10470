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

constexpr int kFour = static_cast<int>(kAccessBytes / sizeof(float));  // elements that a lane takes at once
constexpr std::int64_t kWarpElems = std::int64_t{kWarpLanes} * kFour;
using Floats = Pack<float, kFour>;

// Loads elements i to i + 3, with zeros in place of those from `end` on. kItems: kFour if x + i is aligned for it.
template <int kItems>
__device__ __forceinline__ Floats load_four(const float* x, std::int64_t i, std::int64_t end) {
  if (kItems == kFour && i + kFour <= end) return Floats::load(x + i);
  Floats four;
#pragma unroll
  for (int k = 0; k < kFour; ++k) four.items[k] = i + k < end ? x[i + k] : 0.0F;
  return four;
}

template <int kItems>
__device__ __forceinline__ void store_four(const Floats& four, float* y, std::int64_t i, std::int64_t end) {
  if (kItems == kFour && i + kFour <= end) return four.store(y + i);
#pragma unroll
  for (int k = 0; k < kFour; ++k) {
    if (i + k < end) y[i + k] = four.items[k];
  }
}

// Calls visit(std::integral_constant<int, kItems>): kFour if x is aligned for it, else 1.
template <class Visit>
void with_alignment(const void* x, Visit&& visit) {
  with_items<kFour>(items_an_access(sizeof(float), 0, {x}), visit);
}

// One warp per block of elements; a lane has the signs of half a byte, the next one those of the other half.
template <int kItems>
__global__ void __launch_bounds__(kBlockThreads)
    encode_kernel(Signs signs, const float* x, std::uint8_t* codes, float* scales) {
  for_warp_rows(signs.blocks, [&](std::int64_t b) {
    const std::int64_t begin = b * signs.block;
    const std::int64_t length = min(signs.block, signs.count - begin);
    Sum sum;
    for (std::int64_t first = 0; first < length; first += kWarpElems) {
      const std::int64_t i = first + lane_index() * kFour;
      const Floats four = load_four<kItems>(x + begin, i, length);
      std::uint32_t bits = 0;
#pragma unroll
      for (int k = 0; k < kFour; ++k) {
        sum.value += fabsf(four.items[k]);
        bits |= __float_as_uint(four.items[k]) >> 31 << k;
      }
      bits |= __shfl_xor_sync(kAllLanes, bits, 1) << kFour;
      if (lane_index() % 2 == 0 && i < length) codes[(begin + i) / 8] = static_cast<std::uint8_t>(bits);
    }
    const float whole = warp_reduce(sum).value;
    if (lane_index() == 0) scales[b] = isfinite(whole) ? __fdiv_rn(whole, static_cast<float>(length)) : not_a_number();
  });
}

template <int kItems>
__global__ void __launch_bounds__(kBlockThreads)
    decode_kernel(Signs signs, const std::uint8_t* codes, const float* scales, float* y) {
  for_warp_rows(signs.blocks, [&](std::int64_t b) {
    const std::int64_t begin = b * signs.block;
    const std::int64_t length = min(signs.block, signs.count - begin);
    const std::uint32_t scale = __float_as_uint(scales[b]);
    for (std::int64_t i = lane_index() * kFour; i < length; i += kWarpElems) {
      const std::uint32_t bits = codes[(begin + i) / 8] >> (i % 8);
      Floats four;
#pragma unroll
      for (int k = 0; k < kFour; ++k) four.items[k] = __uint_as_float(scale ^ (bits >> k << 31));
      store_four<kItems>(four, y + begin, i, length);
    }
  });
}

}  // namespace

void run_cuda(const EncodeSigns& args, CudaContext& cuda) {
  const Signs signs{args.count, args.block, args.blocks()};
  with_alignment(args.x.data, [&](auto items) {
    launch(cuda, "encode_signs", launch_shape(signs, cuda), encode_kernel<decltype(items)::value>, signs,
           args.x.as<float>(), args.codes.as<std::uint8_t>(), args.scales.as<float>());
  });
}

void run_cuda(const DecodeSigns& args, CudaContext& cuda) {
  const Signs signs{args.count, args.block, args.blocks()};
  with_alignment(args.y.data, [&](auto items) {
    launch(cuda, "decode_signs", launch_shape(signs, cuda), decode_kernel<decltype(items)::value>, signs,
           args.codes.as<std::uint8_t>(), args.scales.as<float>(), args.y.as<float>());
  });
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

// Keys of four elements: their magnitudes' bits, below 2^31; kNoKey past the end.
constexpr std::uint32_t kNoKey = 0xffffffffU;
template <int kItems>
__device__ __forceinline__ Pack<std::uint32_t, kFour> load_keys(const float* x, std::int64_t i, std::int64_t end) {
  Pack<std::uint32_t, kFour> keys;
  const Floats four = load_four<kItems>(x, i, end);
#pragma unroll
  for (int k = 0; k < kFour; ++k) keys.items[k] = i + k < end ? __float_as_uint(four.items[k]) & 0x7fffffffU : kNoKey;
  return keys;
}

__global__ void __launch_bounds__(kBlockThreads)
    begin_kernel(Search* search, std::uint32_t* histograms, std::uint32_t k) {
  for (int digit = 0; digit < kDigitsPerKey; ++digit) histograms[digit * kDigits + static_cast<int>(threadIdx.x)] = 0;
  if (threadIdx.x == 0) *search = {0, k};
}

// Counts digits of keys whose bits above the digit equal the search's.
template <int kItems>
__global__ void __launch_bounds__(kBlockThreads)
    histogram_kernel(const float* x, std::int64_t count, int shift, const Search* search, std::uint32_t* histogram) {
  __shared__ std::uint32_t counts[kDigits];
  counts[threadIdx.x] = 0;
  __syncthreads();
  const std::uint32_t higher = ~((std::uint32_t{kDigits} << shift) - 1);  // 0 above the highest digit
  const std::uint32_t wanted = search->key & higher;
  const std::int64_t stride = std::int64_t{gridDim.x} * kBlockThreads * kFour;
  for_packs<4>((std::int64_t{blockIdx.x} * kBlockThreads + threadIdx.x) * kFour, stride, count,
               [&](std::int64_t i) { return load_keys<kItems>(x, i, count); },
               [&](std::int64_t /*i*/, const Pack<std::uint32_t, kFour>& keys) {
#pragma unroll
                 for (int k = 0; k < kFour; ++k) {
                   const std::uint32_t key = keys.items[k];
                   if (key == kNoKey || (key & higher) != wanted) continue;
                   atomicAdd(&counts[key >> shift & (kDigits - 1)], std::uint32_t{1});
                 }
               });
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

// Calls visit(i, keys) in every lane for the keys of elements i to i + 3, those of 128 elements at a time.
template <int kItems, class Visit>
__device__ __forceinline__ void for_tile(const float* x, const Tiles& tiles, std::int64_t tile, Visit&& visit) {
  const std::int64_t end = min(tiles.count, (tile + 1) * kTile);
  const int mine = lane_index() * kFour;
  for_packs<4>(
      tile * kTile, kWarpElems, end, [&](std::int64_t first) { return load_keys<kItems>(x, first + mine, end); },
      [&](std::int64_t first, const Pack<std::uint32_t, kFour>& keys) { visit(first + mine, keys); });
}

// A key that is larger than the k-th or equals it; kNoKey is neither.
__device__ __forceinline__ bool is_larger(std::uint32_t key, std::uint32_t kth) {
  return key != kNoKey && key > kth;
}

struct Counts {
  std::uint32_t more = 0;
  std::uint32_t same = 0;
  __device__ __forceinline__ static Counts combine(Counts a, Counts b) { return {a.more + b.more, a.same + b.same}; }
  __device__ __forceinline__ Counts partner(int mask) const {
    return {__shfl_xor_sync(kAllLanes, more, mask), __shfl_xor_sync(kAllLanes, same, mask)};
  }
};

template <int kItems>
__global__ void __launch_bounds__(kBlockThreads)
    count_kernel(const float* x, Tiles tiles, const Search* search, std::uint32_t* larger, std::uint32_t* equal) {
  const std::uint32_t kth = search->key;
  for_warp_rows(tiles.tiles, [&](std::int64_t tile) {
    Counts mine;
    for_tile<kItems>(x, tiles, tile, [&](std::int64_t /*i*/, const Pack<std::uint32_t, kFour>& keys) {
#pragma unroll
      for (int k = 0; k < kFour; ++k) {
        if (is_larger(keys.items[k], kth)) ++mine.more;
        if (keys.items[k] == kth) ++mine.same;
      }
    });
    const Counts all = warp_reduce(mine);
    if (lane_index() == 0) {
      larger[tile] = all.more;
      equal[tile] = all.same;
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

// An element's place is the number of elements before it that are taken, in its tile and in those before; the elements
// of a pack are counted by their number in the pack.
template <int kItems>
__global__ void __launch_bounds__(kBlockThreads)
    write_kernel(const float* x, Tiles tiles, const Search* search, const std::uint32_t* larger,
                 const std::uint32_t* equal, float* values, std::int32_t* indices) {
  const std::uint32_t kth = search->key;
  const std::uint32_t wanted = search->remaining;
  const unsigned lanes_before = (1U << lane_index()) - 1;
  for_warp_rows(tiles.tiles, [&](std::int64_t tile) {
    Counts before{larger[tile], equal[tile]};
    for_tile<kItems>(x, tiles, tile, [&](std::int64_t i, const Pack<std::uint32_t, kFour>& keys) {
      Counts mine = before;  // those before this lane's
#pragma unroll
      for (int k = 0; k < kFour; ++k) {
        const unsigned all_more = __ballot_sync(kAllLanes, is_larger(keys.items[k], kth));
        const unsigned all_same = __ballot_sync(kAllLanes, keys.items[k] == kth);
        const Counts lanes{static_cast<std::uint32_t>(__popc(all_more)), static_cast<std::uint32_t>(__popc(all_same))};
        mine.more += static_cast<std::uint32_t>(__popc(all_more & lanes_before));
        mine.same += static_cast<std::uint32_t>(__popc(all_same & lanes_before));
        before = Counts::combine(before, lanes);
      }
#pragma unroll
      for (int k = 0; k < kFour; ++k) {
        const bool is_more = is_larger(keys.items[k], kth);
        const bool is_same = keys.items[k] == kth;
        if (is_more || (is_same && mine.same < wanted)) {
          const std::uint32_t to = mine.more + min(mine.same, wanted);
          values[to] = x[i + k];
          indices[to] = static_cast<std::int32_t>(i + k);
        }
        mine = Counts::combine(mine, {is_more ? 1U : 0U, is_same ? 1U : 0U});
      }
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
  const LaunchShape warps{
      .blocks = grid_blocks((tiles.tiles + kWarpsPerBlock - 1) / kWarpsPerBlock, cuda.num_multiprocessors())};
  with_alignment(x, [&](auto items) {
    constexpr int kItems = decltype(items)::value;
    for (int digit = 0; digit < kDigitsPerKey; ++digit) {
      const int shift = (kDigitsPerKey - 1 - digit) * kDigitBits;
      std::uint32_t* const histogram = memory.histograms + digit * kDigits;
      launch(cuda, "top_k", elements_shape((args.count + kFour - 1) / kFour, cuda), histogram_kernel<kItems>, x,
             args.count, shift, memory.search, histogram);
      launch(cuda, "top_k", {.blocks = 1, .threads = 1}, choose_kernel, histogram, shift, magnitude_key(args.at),
             memory.search);
    }
    launch(cuda, "top_k", warps, count_kernel<kItems>, x, tiles, memory.search, memory.larger, memory.equal);
    launch(cuda, "top_k", {.blocks = 1}, sum_kernel, tiles.tiles, memory.larger, memory.equal);
    launch(cuda, "top_k", elements_shape(args.k, cuda), clear_kernel, args.k, values, indices);
    launch(cuda, "top_k", warps, write_kernel<kItems>, x, tiles, memory.search, memory.larger, memory.equal, values,
           indices);
  });
}

void run_cuda(const ScatterAdd& args, CudaContext& cuda) {
  launch(cuda, "scatter_add", elements_shape(args.k, cuda), scatter_kernel, args.k, args.values.as<float>(),
         args.indices.as<std::int32_t>(), args.y.as<float>());
}

}  // namespace lockstep::kernels
