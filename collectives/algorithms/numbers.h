// Integer functions that the generators share.
#pragma once

#include <bit>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/algorithms/algorithm.h"

namespace lockstep::algorithms {

// x modulo n in 0..n-1, for negative x too.
inline int wrap(int x, int n) {
  return (x % n + n) % n;
}

inline int floor_power_of_two(int n) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
}
inline int ceil_power_of_two(int n) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(n)));
}
inline int log2_of_power(int n) {
  return std::countr_zero(static_cast<unsigned>(n));
}
inline bool is_power_of_two(int n) {
  return std::has_single_bit(static_cast<unsigned>(n));
}
inline int lowest_bit(int x) {
  return x & -x;
}

// Value of the option "group"; if it is 0, num_ranks over its largest divisor that is no greater than its square root.
int group_size(const Shape& shape);
std::optional<std::string> refuse_non_divisor(const Shape& shape, std::string_view option);

}  // namespace lockstep::algorithms
