// Copies between any host memory and a CUDA device through two pinned blocks in turn: the CPU fills one while the GPU
// empties the other.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "core/cuda_stream.h"

namespace lockstep::core {

class CudaStaging {
 public:
  explicit CudaStaging(std::shared_ptr<CudaContext> context);
  ~CudaStaging();
  CudaStaging(const CudaStaging&) = delete;
  CudaStaging& operator=(const CudaStaging&) = delete;

  void to_device(std::byte* to, const std::byte* from, std::size_t size_bytes);  // both copies are complete on return
  void to_host(std::byte* to, const std::byte* from, std::size_t size_bytes);

 private:
  struct Block {
    std::byte* memory = nullptr;  // pinned
    std::unique_ptr<Event> free;  // passed when the GPU's copy from or to it is done
  };
  // A piece in a block on its way from the device.
  struct Piece {
    std::byte* to = nullptr;
    std::size_t size_bytes = 0;
  };
  void land(Block& block, Piece& piece);
  void copy_async(void* to, const void* from, std::size_t size_bytes);

  std::shared_ptr<CudaContext> context_;
  std::unique_ptr<Stream> stream_;  // the default stream, which all ranks of a process on a GPU share
  std::array<Block, 2> blocks_;
};

}  // namespace lockstep::core
