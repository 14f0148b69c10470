#include "core/cuda_staging.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::core {
namespace {

// Large enough to reach the link's speed, small enough that the first and the last piece, which overlap nothing, are
// short.
constexpr std::size_t kBlockBytes = std::size_t{4} << 20;

}  // namespace

CudaStaging::CudaStaging(std::shared_ptr<CudaContext> context)
    : context_(std::move(context)), stream_(default_cuda_stream(context_)) {
  for (Block& block : blocks_) {
    block.free = make_cuda_event(context_, EventTimes::no);
    block.free->record(*stream_);
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, kBlockBytes), "cudaMallocHost", context_->place);
    block.memory = static_cast<std::byte*>(memory);
  }
}

CudaStaging::~CudaStaging() {
  for (Block& block : blocks_) {
    if (context_->frees()) cudaFreeHost(block.memory);
  }
}

void CudaStaging::copy_async(void* to, const void* from, std::size_t size_bytes) {
  check_cuda(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream_->native())),
             "cudaMemcpyAsync", context_->place);
}

void CudaStaging::to_device(std::byte* to, const std::byte* from, std::size_t size_bytes) {
  for (std::size_t at = 0, turn = 0; at < size_bytes; at += kBlockBytes, turn = 1 - turn) {
    Block& block = blocks_.at(turn);
    const std::size_t piece_bytes = std::min(kBlockBytes, size_bytes - at);
    block.free->synchronize();
    std::memcpy(block.memory, from + at, piece_bytes);
    copy_async(to + at, block.memory, piece_bytes);
    block.free->record(*stream_);
  }
  stream_->synchronize();
}

void CudaStaging::to_host(std::byte* to, const std::byte* from, std::size_t size_bytes) {
  std::array<Piece, 2> pieces;  // [block]: piece in it that has not been copied to its destination
  std::size_t turn = 0;
  for (std::size_t at = 0; at < size_bytes; at += kBlockBytes, turn = 1 - turn) {
    land(blocks_.at(turn), pieces.at(turn));
    pieces.at(turn) = {.to = to + at, .size_bytes = std::min(kBlockBytes, size_bytes - at)};
    copy_async(blocks_.at(turn).memory, from + at, pieces.at(turn).size_bytes);
    blocks_.at(turn).free->record(*stream_);
  }
  land(blocks_.at(turn), pieces.at(turn));
  land(blocks_.at(1 - turn), pieces.at(1 - turn));
}

void CudaStaging::land(Block& block, Piece& piece) {
  if (piece.size_bytes == 0) return;
  block.free->synchronize();
  std::memcpy(piece.to, block.memory, piece.size_bytes);
  piece = {};
}

}  // namespace lockstep::core
