#include <algorithm>
#include <array>
#include <span>
#include <type_traits>

#include "kernels/base/cuda_elements.cuh"
#include "kernels/base/cuda_launch.cuh"
#include "kernels/bucket/bucket.h"

namespace lockstep::kernels {
namespace {

// Maximum number of pieces that one launch moves. Their table is an argument of the kernel, so that it needs no memory
// and a graph captures it. 128 pieces are 4 KiB.
constexpr int kMostPieces = 126;
constexpr std::int64_t kTileElems = std::int64_t{kBlockThreads} * 32;

struct Piece {
  const void* from;
  void* to;
  std::int64_t count;
  std::int64_t first_tile;
};
struct Pieces {
  Piece list[kMostPieces];
  int num_pieces;
  float scale;
  std::int64_t num_tiles;
};

// Returns the last piece that begins at or before the tile.
__device__ __forceinline__ int piece_of(const Pieces& pieces, std::int64_t tile) {
  int low = 0;
  int high = pieces.num_pieces;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (pieces.list[middle].first_tile <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

template <class From, class To, int kItems>
__device__ __forceinline__ Pack<To, kItems> converted(const Pack<From, kItems>& in, float scale) {
  if constexpr (std::is_same_v<From, To>) {
    if (scale == 1.0F) return in;  // moves bits, whatever their meaning
  }
  Pack<To, kItems> out;
#pragma unroll
  for (int i = 0; i < kItems; ++i) out.set(i, in[i] * scale);
  return out;
}

// Moves elements `begin` to `end` of a piece with all threads of a block.
template <class From, class To, int kItems>
__device__ __forceinline__ void move(const From* from, To* to, std::int64_t begin, std::int64_t end, float scale) {
  constexpr int kAhead = 4;
  const std::int64_t whole = begin + (end - begin) / kItems * kItems;
  for_packs<kAhead>(
      begin + std::int64_t{threadIdx.x} * kItems, std::int64_t{kBlockThreads} * kItems, whole,
      [&](std::int64_t i) { return Pack<From, kItems>::load(from + i); },
      [&](std::int64_t i, const Pack<From, kItems>& pack) { converted<From, To>(pack, scale).store(to + i); });
  const std::int64_t last = whole + threadIdx.x;
  if (kItems > 1 && last < end) converted<From, To>(Pack<From, 1>::load(from + last), scale).store(to + last);
}

__device__ __forceinline__ bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kAccessBytes == 0;
}

// A tile is a part of one piece; the access width is chosen here, because each piece has its own alignment.
template <class From, class To>
__global__ void __launch_bounds__(kBlockThreads) move_kernel(const __grid_constant__ Pieces pieces) {
  constexpr int kItems = static_cast<int>(kAccessBytes / (sizeof(From) > sizeof(To) ? sizeof(From) : sizeof(To)));
  for (std::int64_t tile = blockIdx.x; tile < pieces.num_tiles; tile += gridDim.x) {
    const Piece& piece = pieces.list[piece_of(pieces, tile)];
    const auto* from = static_cast<const From*>(piece.from);
    auto* to = static_cast<To*>(piece.to);
    const std::int64_t begin = (tile - piece.first_tile) * kTileElems;
    const std::int64_t end = min(begin + kTileElems, piece.count);
    if (is_aligned(from) && is_aligned(to)) {
      move<From, To, kItems>(from, to, begin, end, pieces.scale);
    } else {
      move<From, To, 1>(from, to, begin, end, pieces.scale);
    }
  }
}

template <class From, class To>
void move_pieces(CudaContext& cuda, const char* name, std::span<const Piece> all, float scale) {
  while (!all.empty()) {
    const std::size_t some = std::min(all.size(), static_cast<std::size_t>(kMostPieces));
    Pieces pieces{.list = {}, .num_pieces = static_cast<int>(some), .scale = scale, .num_tiles = 0};
    for (std::size_t i = 0; i < some; ++i) {
      pieces.list[i] = all[i];
      pieces.list[i].first_tile = pieces.num_tiles;
      pieces.num_tiles += (all[i].count + kTileElems - 1) / kTileElems;
    }
    launch(cuda, name, {.blocks = grid_blocks(pieces.num_tiles, cuda.num_multiprocessors())}, move_kernel<From, To>,
           pieces);
    all = all.subspan(some);
  }
}

void move_pieces(CudaContext& cuda, const char* name, core::DType from, core::DType to, std::span<const Piece> all,
                 float scale) {
  with_cuda_activation_type(from, [&](auto from_zero) {
    with_cuda_activation_type(
        to, [&](auto to_zero) { move_pieces<decltype(from_zero), decltype(to_zero)>(cuda, name, all, scale); });
  });
}

std::byte* advanced(void* memory, std::size_t size_bytes) {
  return static_cast<std::byte*>(memory) + size_bytes;
}
const std::byte* advanced(const void* memory, std::size_t size_bytes) {
  return static_cast<const std::byte*>(memory) + size_bytes;
}

}  // namespace

void run_cuda(const PackBucket& args, CudaContext& cuda) {
  std::vector<Piece> pieces;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < args.counts.size(); ++i) {
    void* const to = advanced(args.bucket.data, size_bytes(args.bucket.dtype, at));
    if (args.counts[i] > 0) pieces.push_back({args.pieces[i].data, to, args.counts[i], 0});
    at += args.counts[i];
  }
  move_pieces(cuda, "pack_bucket", args.pieces[0].dtype, args.bucket.dtype, pieces, args.scale);
}

void run_cuda(const UnpackBucket& args, CudaContext& cuda) {
  std::vector<Piece> pieces;
  std::int64_t at = 0;
  for (std::size_t i = 0; i < args.counts.size(); ++i) {
    const void* const from = advanced(args.bucket.data, size_bytes(args.bucket.dtype, at));
    if (args.counts[i] > 0) pieces.push_back({from, args.pieces[i].data, args.counts[i], 0});
    at += args.counts[i];
  }
  move_pieces(cuda, "unpack_bucket", args.bucket.dtype, args.pieces[0].dtype, pieces, args.scale);
}

}  // namespace lockstep::kernels
