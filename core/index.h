// Ranks, steps and elements are signed numbers, and the standard containers' indices are not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

constexpr std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

}  // namespace lockstep
