// Where an element of a tile lies in shared memory (PTX ISA, "Shared Memory Matrix Layout"): in each group of 8 rows,
// pieces of 16 bytes are exchanged by the row's number.
#pragma once

#include <cstdint>

namespace lockstep::ptx {

// `swizzle` as in a matrix descriptor: 1: 128 bytes, 2: 64, 3: 32, 0: none.
inline std::uint32_t swizzled(std::uint32_t at, int swizzle) {
  const std::uint32_t mask = swizzle == 0 ? 0 : 7U >> (swizzle - 1);
  return at ^ ((at >> 7 & mask) << 4);
}

}  // namespace lockstep::ptx
