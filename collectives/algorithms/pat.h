// Shape of PAT's trees (pat.cpp explains them): the offset in each buffer slot, and the steps of phase 1.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives/algorithms/numbers.h"

namespace lockstep::algorithms {

class PatTrees {
 public:
  // At most `aggregation` blocks per message (rounded down to a power of two); 0: no limit.
  PatTrees(int num_ranks, int aggregation);

  // Phase 1: `count` slots from `from` on are sent `distance` ranks further, and arrive in slots from `to` on.
  struct Level {
    int distance;
    int from;
    int to;
    int count;
  };
  const std::vector<Level>& levels() const { return levels_; }

  int num_trees() const { return static_cast<int>(offsets_.size()); }
  int offset(int slot) const { return offsets_[static_cast<std::size_t>(slot)]; }
  // The slot of offset 0.
  int top_slot() const { return levels_.empty() ? 0 : levels_.front().from; }

  // Phase 2: inner offsets are 1 .. inner_end() - 1; count_at() is the number of trees that reach one: those of slots 0
  // .. count_at() - 1.
  int inner_end() const { return std::min(spacing_, num_ranks_); }
  int count_at(int inner) const;

  // One slot per tree for the roots, and for each power of two that can be an inner offset's lowest bit.
  int num_slots() const { return num_trees() * (1 + log2_of_power(ceil_power_of_two(inner_end()))); }

 private:
  int num_ranks_;
  int spacing_ = 1;
  std::vector<int> offsets_;  // by slot
  std::vector<Level> levels_;
};

}  // namespace lockstep::algorithms
