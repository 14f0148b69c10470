// Arithmetic of indices and sizes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

// Converts signed ranks, steps and element numbers to the unsigned indices of standard containers.
constexpr std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

// The least multiple of `unit` that is not less than `size`.
constexpr std::size_t round_up(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

}  // namespace lockstep
