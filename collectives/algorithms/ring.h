// The ring as a building block: ranks in a circle, each piece travels once around it. Used by ring, hierarchical,
// ring_2d, scatter_allgather and reduce_scatter_gather.
#pragma once

#include <functional>
#include <vector>

#include "collectives/plan/plan.h"

namespace lockstep::algorithms {

// Data flows from ranks[i] to ranks[i + direction].
struct Ring {
  std::vector<int> ranks;
  int direction = 1;  // 1 or -1
};

// One piece for each position of the ring: `width` chunks of a buffer from first + i * stride on.
struct Pieces {
  int first;
  int width;
  int stride;
  plan::Slice in(plan::Buffer buffer, int i) const { return {buffer, first + i * stride, width}; }
};

// Slot in which the rank at a position keeps the partial sum of a step (0 .. n-2).
using SumSlot = std::function<plan::Slice(int position, int step)>;
// True if the rank at a position is to receive a piece.
using Needs = std::function<bool(int position, int piece)>;
// The block that the rank at a position sends first.
using Own = std::function<plan::Slice(int position)>;

// After n-1 steps position i has the sum of all ranks' piece i of `from`, in place(i, n-2).
void ring_reduce_scatter(plan::PlanBuilder& builder, const Ring& ring, const Pieces& pieces, plan::Buffer from,
                         const SumSlot& place, int lane);
// Slot of partial sums in the rank's output, which has room for all pieces.
SumSlot in_output(const Ring& ring, const Pieces& pieces);

// After n-1 steps each position has all ranks' pieces in its output; own(i) is not put there.
void ring_all_gather(plan::PlanBuilder& builder, const Ring& ring, const Pieces& pieces, const Own& own, int lane,
                     const Needs& needs = nullptr);

// Both: reduces the pieces of `from` into all ranks' outputs.
void ring_all_reduce(plan::PlanBuilder& builder, const Ring& ring, const Pieces& pieces, plan::Buffer from, int lane);

}  // namespace lockstep::algorithms
