// How the CPU's rotary embedding divides its scratch memory. For the sources of this folder.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels {

// A thread's memory for the current row, in whole pairs of vectors of any target.
struct RotaryMemory {
  // `memory` has elems(head_columns) floats, and must outlive this.
  RotaryMemory(std::int64_t head_columns, float* memory)
      : padded(elems(head_columns) / 4),
        fractions(memory),
        quarters(memory + padded),
        cosines(memory + 2 * padded),
        sines(memory + 3 * padded) {}

  static std::size_t elems(std::int64_t head_columns) {
    return 4 * ((static_cast<std::size_t>(head_columns / 2) + kMostPair - 1) / kMostPair * kMostPair);
  }

  static constexpr std::size_t kMostPair = 32;  // floats
  std::size_t padded;
  float* fractions;  // rest of an angle beyond whole quarter turns: -1/8 to 1/8 of a turn
  float* quarters;   // 0 to 3
  float* cosines;    // [head_columns / 2]
  float* sines;
};

}  // namespace lockstep::kernels
