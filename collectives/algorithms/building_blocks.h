// Building blocks that the generators of plans share: integer functions, binomial trees as ranges, the adaptation of
// algorithms for powers of two to any number of ranks, direct exchange, rings and trees of ranks, and PAT's trees.
#pragma once

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithms/algorithm.h"
#include "collectives/plan/plan.h"

namespace lockstep::algorithms {

// Integer functions that the generators share.

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

// The ring as a building block: ranks in a circle, each piece travels once around it. Used by ring, hierarchical,
// ring_2d, scatter_allgather and reduce_scatter_gather.

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

// Trees as a building block: how ranks are connected, and how data is reduced up and broadcast down a tree, chunk by
// chunk, so that all levels work at once. Chain, star, binary, k-nomial and double trees differ in the parent only.

// Parent and children of each rank.
struct Tree {
  int root;
  std::vector<int> parent;                 // -1 at the root
  std::vector<std::vector<int>> children;  // in the order of their vertices: in a k-nomial tree small subtrees first
};

// A tree of vertices 0..n-1. parent_of is -1 at the root; rank_of maps vertices to ranks.
using VertexMap = std::function<int(int vertex)>;
Tree make_tree(int num_vertices, const VertexMap& parent_of, const VertexMap& rank_of);
// Vertex 0 is `root`, vertex 1 the rank after it, and so on around.
Tree make_rooted_tree(int num_ranks, int root, const VertexMap& parent_of);

// Parents of a vertex v > 0 in trees with root 0.
int chain_parent(int v);
int star_parent(int v);
int heap_parent(int v);                // binary, levels filled from the left
int knomial_parent(int v, int radix);  // the lowest digit that is not 0, set to 0; radix 2: binomial
// Parent of vertex y = 1..n in the binary tree whose leaves are the odd vertices; 0 for the topmost (tree.cpp).
int in_order_parent(int y, int n);

// The chunks of a block that go through a tree.
struct ChunkRange {
  int first;
  int count;
};

// From the root's input to all ranks' outputs.
void tree_broadcast(plan::PlanBuilder& builder, const Tree& tree, ChunkRange chunks, int lane);
// From all ranks' inputs to the root's output; inner ranks keep partial sums in two scratch slots that alternate.
void tree_reduce(plan::PlanBuilder& builder, const Tree& tree, ChunkRange chunks, int lane);
// From all ranks' inputs to all ranks' outputs: up in `lane`, down in lane + 1.
void tree_all_reduce(plan::PlanBuilder& builder, const Tree& tree, ChunkRange chunks, int lane);

// Shape of PAT's trees (pat.cpp explains them): the offset in each buffer slot, and the steps of phase 1.

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
