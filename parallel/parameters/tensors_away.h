// Tensors that wait off a rank's device, in the host's memory or in a file, until they are needed again.
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

// One thread at a time: the one that copies. It may be another than that of kernels. To and from a file tensors go by
// way of blocks of the host's memory, many at a time, of which some are written while the next are filled.
class TensorsAway {
 public:
  struct Place {
    std::int64_t offset = 0;  // a multiple of kAlign, as its bytes rounded up are
    std::int64_t bytes = 0;
  };
  static constexpr std::int64_t kAlign = 4096;

  // `room_bytes`: of all places.
  TensorsAway(Memory& memory, const MakeStateRoom& make_room, std::int64_t room_bytes);
  ~TensorsAway();  // what is under way ends first
  TensorsAway(const TensorsAway&) = delete;
  TensorsAway& operator=(const TensorsAway&) = delete;

  // Copies the tensors that are given, activations of place.bytes in all, and gives them up. What the place had has
  // been brought back.
  void take(const Place& place, std::span<Tensor* const> tensors);
  // Makes those tensors of the same list again.
  void bring_back(const Place& place, std::span<Tensor* const> tensors);

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
  void write_blocks(const Place& place, std::span<Tensor* const> tensors);
  void read_blocks(const Place& place, std::span<Tensor* const> tensors);
  void end(Block& block);

  Memory& memory_;
  core::PinnedMemory staging_;  // of a room whose copies have to be aligned
  std::array<Block, 8> blocks_ = {};
  std::map<std::int64_t, std::vector<Left>> left_;  // by the place's offset
  std::unique_ptr<StateRoom> room_;                 // goes first
  std::int64_t moved_bytes_ = 0;
};

}  // namespace lockstep::parallel
