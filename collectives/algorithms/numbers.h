// Integer functions that the generators share.
#pragma once

#include <algorithm>
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

// The binomial tree as nested ranges: the subtree of vertex v is [v, v + size).

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

// Makes an algorithm for powers of two fit any number of ranks, as MPICH does (allreduce_intra_recursive_doubling.c).
//
// With p = core + extra, core the largest power of two, the first 2 extra ranks form pairs: the even one sends its data
// to the odd one, sits out, and receives the result at the end. The core ranks, renumbered 0..core-1 in rank order:
//
//   p = 6:  rank       0   1   2   3   4   5
//           core rank  .   0   .   1   2   3       (0 -> 1 and 2 -> 3 before, 1 -> 0 and 3 -> 2 after)

class Folding {
 public:
  explicit Folding(int num_ranks) : core_(floor_power_of_two(num_ranks)), extra_(num_ranks - core_) {}
  int core() const { return core_; }
  int extra() const { return extra_; }
  int rank_of(int core_rank) const { return core_rank < extra_ ? 2 * core_rank + 1 : core_rank + extra_; }
  bool has_guest(int core_rank) const { return core_rank < extra_; }
  // The rank that sits out and that this core rank acts for; only if has_guest(core_rank).
  int guest_of(int core_rank) const { return 2 * core_rank; }
  // The first of the ranks that core_rank acts for (its guest and itself); for core(): the number of ranks.
  int first_block(int core_rank) const { return core_rank < extra_ ? 2 * core_rank : core_rank + extra_; }

 private:
  int core_;
  int extra_;
};

// Direct exchange between all ranks (or with the root) at once. Peers are visited from rank+1 on, so that not all ranks
// start with the same one.

// Calls visit(peer) for each other rank: rank+1, rank+2, ...
template <typename Visit>
void for_each_peer(int rank, int num_ranks, Visit visit) {
  for (int i = 1; i < num_ranks; ++i) visit(wrap(rank + i, num_ranks));
}

}  // namespace lockstep::algorithms
