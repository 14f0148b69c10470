// Trees as a building block: how ranks are connected, and how data is reduced up and broadcast down a tree, chunk by
// chunk, so that all levels work at once. Chain, star, binary, k-nomial and double trees differ in the parent only.
#pragma once

#include <functional>
#include <vector>

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
// Parent of vertex y = 1..n in the binary tree whose leaves are the odd vertices; 0 for the topmost (double_tree.cpp).
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

}  // namespace lockstep::algorithms
