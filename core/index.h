// Converts signed ranks, steps and element numbers to the unsigned indices of standard containers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

constexpr std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace lockstep
