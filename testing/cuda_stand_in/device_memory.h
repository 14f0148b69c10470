// Memory that kernels may use: one range of addresses backed by a file in memory, of which other processes can map
// parts. Addresses are handed out once only, with gaps between, so that an access past an allocation's end or after its
// release is always found. Pages cost nothing until they are written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "testing/cuda_stand_in/launch.h"

namespace lockstep::cuda_stand_in {

class DeviceMemory {
 public:
  // Memory came or went; kept for the executor until take_events().
  struct Event {
    bool allocated;  // otherwise freed
    std::uintptr_t begin;
    std::size_t size_bytes;
  };
  using Handle = std::array<std::byte, 64>;

  DeviceMemory();

  // All of these throw Refused.
  std::uintptr_t allocate(std::size_t size_bytes, MemoryKind kind);
  void release(std::uintptr_t begin, MemoryKind kind);
  Handle handle_of(std::uintptr_t address) const;
  std::uintptr_t open(const Handle& handle);
  // A range that a copy or a fill uses: if it is ours, it must lie in one allocation that lives.
  void check(std::uintptr_t begin, std::size_t size_bytes, const char* use) const;

  void fill(std::uintptr_t begin, int value, std::size_t size_bytes) const;
  std::optional<Memory> at(std::uintptr_t address) const;  // live or freed
  std::size_t free_bytes() const { return free_bytes_; }
  void announce_all();  // as events: all that lives
  bool has_events() const { return !events_.empty(); }
  std::vector<Event> take_events() { return std::exchange(events_, {}); }

 private:
  void create();

  int file_ = -1;
  std::uintptr_t begin_ = 0;
  std::uintptr_t next_ = 0;  // the next address to hand out
  std::size_t free_bytes_;
  std::map<std::uintptr_t, Memory> known_;  // by their first address
  std::vector<Event> events_;
};

}  // namespace lockstep::cuda_stand_in
