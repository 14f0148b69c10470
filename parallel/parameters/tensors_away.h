// Tensors kept off a rank's device, in host memory or in a file, until they are needed again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/pinned_memory.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/state_room.h"

namespace lockstep::parallel {

// For one thread at a time, the one that copies, which may differ from that of kernels. Copies to and from a file go
// through many blocks of host memory, some of which are written while the next are filled.
class TensorsAway {
 public:
  struct Slot {
    std::int64_t offset = 0;  // a multiple of kAlign; slots do not overlap when their sizes are rounded up to it
    std::int64_t bytes = 0;
  };
  static constexpr std::int64_t kAlign = 4096;

  // `room_bytes`: size of all slots together.
  TensorsAway(Memory& memory, const MakeStateRoom& make_room, std::int64_t room_bytes);
  ~TensorsAway();  // copies in flight end first
  TensorsAway(const TensorsAway&) = delete;
  TensorsAway& operator=(const TensorsAway&) = delete;

  // Copies the given tensors, `slot.bytes` of activations in all, off the device and frees them. The previous contents
  // of the slot must have been brought back.
  void take(const Slot& slot, std::span<Tensor* const> tensors);
  // Allocates the same tensors again and copies their contents back.
  void bring_back(const Slot& slot, std::span<Tensor* const> tensors);

  std::int64_t moved_bytes() const { return moved_bytes_; }  // off the device and back, so far

 private:
  static constexpr std::int64_t kBlockBytes = std::int64_t{1} << 20;
  struct Left {
    std::size_t index = 0;  // in the list
    core::DType dtype = core::DType::f32;
    std::int64_t elems = 0;
  };
  struct Block {
    std::byte* data = nullptr;
    StateRoom::Ticket ticket = 0;
    bool moves = false;
  };
  void write_blocks(const Slot& slot, std::span<Tensor* const> tensors);
  void read_blocks(const Slot& slot, std::span<Tensor* const> tensors);
  void end(Block& block);

  Memory& memory_;
  core::PinnedMemory staging_;  // for a room whose copies have to be aligned
  std::array<Block, 8> blocks_ = {};
  std::map<std::int64_t, std::vector<Left>> left_;  // by the slot's offset
  std::unique_ptr<StateRoom> room_;                 // destroyed first
  std::int64_t moved_bytes_ = 0;
};

}  // namespace lockstep::parallel
