// Trees as a building block: how ranks are connected, and how data is reduced up and broadcast down a tree, chunk by
// chunk, so that all levels work at once. Chain, star, binary, k-nomial and double trees differ in the parent only.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "collectives/algorithms/numbers.h"
#include "collectives/plan/plan.h"

namespace lockstep::algorithms {

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
