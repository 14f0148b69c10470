// The binomial tree as nested ranges: the subtree of vertex v is [v, v + size).
#pragma once

#include <algorithm>

#include "collectives/algorithms/numbers.h"

namespace lockstep::algorithms {

inline int binomial_parent(int v) {
  return v - lowest_bit(v);
}
inline int binomial_size(int v, int n) {
  return v == 0 ? n : std::min(lowest_bit(v), n - v);
}
// Largest subtree of a vertex other than the root.
inline int largest_inner_size(int n) {
  int most = 0;
  for (int v = 1; v < n; ++v) most = std::max(most, binomial_size(v, n));
  return most;
}

// Calls visit(child) for v's children, small ranges (near ones) first, or large ones first.
template <typename Visit>
void for_each_child_up(int v, int n, Visit visit) {
  const int end = v == 0 ? n : lowest_bit(v);
  for (int bit = 1; bit < end && v + bit < n; bit *= 2) visit(v + bit);
}
template <typename Visit>
void for_each_child_down(int v, int n, Visit visit) {
  const int end = v == 0 ? ceil_power_of_two(n) : lowest_bit(v);
  for (int bit = end / 2; bit >= 1; bit /= 2) {
    if (v + bit < n) visit(v + bit);
  }
}

}  // namespace lockstep::algorithms
