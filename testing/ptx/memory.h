// Memory with a shadow: for every byte whether it has been written, and for every granule who wrote and read it last,
// so that accesses that nothing orders are found. A granule is as wide as the narrowest access so far, at most 4 bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "testing/ptx/clock.h"

namespace lockstep::ptx {

// The scope within which an atomic or ordered access is meant (PTX ISA, .scope).
enum class Scope : std::uint8_t { none, block, cluster, device, system };

// The path of an access: weak ones race with all that is not ordered; strong ones (relaxed, volatile, atomic) race
// only with weak ones and with strong ones out of scope.
enum class Proxy : std::uint8_t { generic, async };

struct Access {
  WarpId warp = 0;  // 0: nobody
  std::uint32_t time = 0;
  std::uint32_t line : 20 = 0;  // in the PTX file
  std::uint32_t lane : 5 = 0;
  std::uint32_t is_strong : 1 = 0;
  std::uint32_t is_async : 1 = 0;      // by the asynchronous proxy
  std::uint32_t scope : 3 = 0;         // a Scope
  std::uint32_t is_in_flight : 1 = 0;  // an asynchronous copy, not yet complete
};

class Shadow {
 public:
  explicit Shadow(std::size_t size_bytes, bool initialized);

  struct Cell {
    Access writer;                  // warp 0: none
    std::array<Access, 2> readers;  // recent ones of different warps
    std::uint8_t next_reader = 0;
  };
  // Calls each(cell) for the granules of [begin, begin + bytes).
  template <class F>
  void for_cells(std::size_t begin, std::size_t bytes, F&& each) {
    const std::size_t end = begin + bytes;
    for (std::size_t at = begin; at < end;) {
      const std::size_t next = std::min(end, (at / kPageBytes + 1) * kPageBytes);
      Page& page = page_for(at, next - at);
      const std::size_t last = (next - 1) % kPageBytes >> page.shift;
      for (std::size_t i = at % kPageBytes >> page.shift; i <= last; ++i) each(page.cells[i]);
      at = next;
    }
  }
  bool is_initialized(std::size_t begin, std::size_t bytes) const;
  void set_initialized(std::size_t begin, std::size_t bytes, bool value = true);

 private:
  // Pages have cells once they are accessed: allocations are much larger than what a kernel uses of them.
  static constexpr std::size_t kPageBytes = 4096;
  struct Page {
    int shift = 2;
    std::vector<Cell> cells = {};
  };
  Page& page_for(std::size_t begin, std::size_t bytes);  // its granules become as narrow as the access
  std::vector<Page> pages_;
  std::vector<bool> initialized_;
};

// A piece of global memory.
struct Allocation {
  std::byte* begin;
  std::size_t size_bytes;
  Shadow shadow;
  // Views that releases at an address of 4 or 8 bytes hand on, by scope.
  struct Release {
    View view;
    Scope scope;
    std::int32_t block;
  };
  std::map<std::uintptr_t, std::vector<Release>> released = {};
};

// All global memory of a device.
class GlobalMemory {
 public:
  void add(void* begin, std::size_t size_bytes, bool initialized);
  void remove(void* begin);
  // The host has written these bytes.
  void set_initialized(const void* begin, std::size_t size_bytes);
  // Null if no allocation holds all of the bytes.
  Allocation* find(std::uintptr_t address, std::size_t size_bytes);

 private:
  std::map<std::uintptr_t, Allocation> all_;  // by address
  Allocation* last_ = nullptr;
};

}  // namespace lockstep::ptx
