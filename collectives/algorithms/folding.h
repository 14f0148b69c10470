// Makes an algorithm for powers of two fit any number of ranks, as MPICH does (allreduce_intra_recursive_doubling.c).
//
// With p = core + extra, core the largest power of two, the first 2 extra ranks form pairs: the even one sends its data
// to the odd one, sits out, and receives the result at the end. The core ranks, renumbered 0..core-1 in rank order:
//
//   p = 6:  rank       0   1   2   3   4   5
//           core rank  .   0   .   1   2   3       (0 -> 1 and 2 -> 3 before, 1 -> 0 and 3 -> 2 after)
#pragma once

#include "collectives/algorithms/numbers.h"

namespace lockstep::algorithms {

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

}  // namespace lockstep::algorithms
