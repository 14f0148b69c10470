#include "collectives/algorithms/building_blocks.h"

#include <algorithm>

#include "collectives/algorithms/algorithm.h"
#include "core/index.h"

namespace lockstep::algorithms {

using collectives::Kind;
using plan::PlanBuilder;
using plan::Slice;

namespace {

int size_of(const Tree& tree) {
  return static_cast<int>(tree.parent.size());
}

}  // namespace

Tree make_tree(int num_vertices, const VertexMap& parent_of, const VertexMap& rank_of) {
  Tree tree{0, std::vector<int>(at(num_vertices), -1), std::vector<std::vector<int>>(at(num_vertices))};
  for (int v = 0; v < num_vertices; ++v) {
    const int parent = parent_of(v);
    if (parent < 0) {
      tree.root = rank_of(v);
    } else {
      tree.parent[at(rank_of(v))] = rank_of(parent);
      tree.children[at(rank_of(parent))].push_back(rank_of(v));
    }
  }
  return tree;
}

Tree make_rooted_tree(int num_ranks, int root, const VertexMap& parent_of) {
  return make_tree(
      num_ranks, [&](int v) { return v == 0 ? -1 : parent_of(v); }, [&](int v) { return (root + v) % num_ranks; });
}

int chain_parent(int v) {
  return v - 1;
}
int star_parent(int /*v*/) {
  return 0;
}
int heap_parent(int v) {
  return (v - 1) / 2;
}

int knomial_parent(int v, int radix) {
  int place = 1;
  while (v / place % radix == 0) place *= radix;
  return v - v / place % radix * place;
}

int in_order_parent(int y, int n) {
  const int bit = lowest_bit(y);
  const int inward = (y ^ bit) | (2 * bit);  // ..01 -> ..10 and ..11 -> ..10, above the trailing zeros
  return inward <= n ? inward : y ^ bit;
}

void tree_broadcast(PlanBuilder& builder, const Tree& tree, ChunkRange chunks, int lane) {
  for (int r = 0; r < size_of(tree); ++r) {
    const bool is_root = r == tree.root;
    const auto& children = tree.children[at(r)];
    for (int c = chunks.first; c < chunks.first + chunks.count; ++c) {
      if (!is_root) builder.recv(r, tree.parent[at(r)], plan::output(c), lane);
      const Slice src = is_root ? plan::input(c) : plan::output(c);
      std::for_each(children.rbegin(), children.rend(), [&](int child) { builder.send(r, child, src, lane); });
    }
    if (is_root)
      builder.copy(r, plan::output(chunks.first, chunks.count), plan::input(chunks.first, chunks.count), lane);
  }
}

namespace {

// A partial sum, and the step of its rank that produced it (-1: it is the rank's own input).
struct Sum {
  Slice slice;
  int step = -1;
};

// Adds the children's sums to the rank's own input, into `into`.
Sum add_children(PlanBuilder& builder, const Tree& tree, int rank, Slice own, Slice into, int lane) {
  Sum sum{own};
  for (const int child : tree.children[at(rank)]) {
    sum.step = builder.recv_reduce(rank, child, into, sum.slice, lane);
    sum.slice = into;
  }
  return sum;
}

bool has_inner_vertex_below_root(const Tree& tree) {
  for (int r = 0; r < size_of(tree); ++r) {
    if (r != tree.root && !tree.children[at(r)].empty()) return true;
  }
  return false;
}

}  // namespace

void tree_reduce(PlanBuilder& builder, const Tree& tree, ChunkRange chunks, int lane) {
  const int num_slots = has_inner_vertex_below_root(tree) ? std::min(chunks.count, 2) : 0;
  const int slots = builder.take_scratch(num_slots);
  for (int r = 0; r < size_of(tree); ++r) {
    for (int k = 0; k < chunks.count; ++k) {
      const Slice own = plan::input(chunks.first + k);
      const Slice into = r == tree.root ? plan::output(chunks.first + k) : plan::scratch(slots + k % 2);
      const Sum sum = add_children(builder, tree, r, own, into, lane);
      if (r != tree.root) builder.send(r, tree.parent[at(r)], sum.slice, lane);
    }
  }
}

// Two lanes, so that sums keep moving up while results come down. A result that is written to a chunk of output
// overwrites the partial sum that was sent up from there: `after` states the order, though the data dependences imply
// it.
void tree_all_reduce(PlanBuilder& builder, const Tree& tree, ChunkRange chunks, int lane) {
  const int down = lane + 1;
  for (int r = 0; r < size_of(tree); ++r) {
    const int parent = tree.parent[at(r)];
    const auto& children = tree.children[at(r)];
    for (int c = chunks.first; c < chunks.first + chunks.count; ++c) {
      const Sum sum = add_children(builder, tree, r, plan::input(c), plan::output(c), lane);
      plan::After summed{lane, sum.step};
      if (r != tree.root) {
        summed.step = builder.send(r, parent, sum.slice, lane);
        builder.recv(r, parent, plan::output(c), down, summed);
      }
      std::for_each(children.rbegin(), children.rend(),
                    [&](int child) { builder.send(r, child, plan::output(c), down, summed); });
    }
  }
}

// One tree: all-reduce as reduce up and broadcast down; broadcast; reduce. Shapes differ only in the parent function:
//
//   chain        0 - 1 - 2 - ... - p-1                pipelined: S bytes per rank, p-1 hops
//   binary_tree  children of v: 2v+1, 2v+2            pipelined: lg p hops, inner ranks send 2 S (broadcast)
//   tree         k-nomial: the parent of v is v with its lowest digit in base k that is not 0 set to 0;
//   binomial     k = 2
//   direct       a star: the root exchanges with each rank itself
//
//   binomial, 8 ranks:   0 -> 4, 2, 1;   4 -> 6, 5;   2 -> 3;   6 -> 7
//
// Source: Traff, Ripke, Optimal broadcast for fully connected networks, HPCC 2005 (chain, binary, binomial compared);
//   MPICH bcast_intra_binomial.c, and bcast_intra_tree.c (k-nomial); Gloo and Open MPI have the same shapes.
// Steps and bytes: docs/metrics.md.

namespace {

// The builder's collective, broadcast, reduce or all-reduce, along a tree. An all-reduce takes two lanes.
void move_along(PlanBuilder& builder, const Tree& tree, ChunkRange chunks, int lane) {
  if (builder.kind() == Kind::broadcast) return tree_broadcast(builder, tree, chunks, lane);
  if (builder.kind() == Kind::reduce) return tree_reduce(builder, tree, chunks, lane);
  tree_all_reduce(builder, tree, chunks, lane);
}

void move_along_rooted(PlanBuilder& builder, const Shape& shape, int chunks, const VertexMap& parent_of) {
  builder.cut_blocks(chunks);
  move_along(builder, make_rooted_tree(shape.num_ranks, shape.root, parent_of), {0, chunks}, 0);
}

}  // namespace

void knomial_tree(PlanBuilder& builder, const Shape& shape) {
  const int radix = shape.option("radix");
  move_along_rooted(builder, shape, shape.option("chunks"), [radix](int v) { return knomial_parent(v, radix); });
}

void binary_tree(PlanBuilder& builder, const Shape& shape) {
  move_along_rooted(builder, shape, shape.option("chunks"), heap_parent);
}

void chain(PlanBuilder& builder, const Shape& shape) {
  move_along_rooted(builder, shape, shape.option("chunks"), chain_parent);
}

void binomial_tree(PlanBuilder& builder, const Shape& shape) {
  move_along_rooted(builder, shape, 1, binomial_parent);
}

void star(PlanBuilder& builder, const Shape& shape) {
  move_along_rooted(builder, shape, 1, star_parent);
}

// Double binary tree: two binary trees over the same ranks, each for half of the data, such that a rank that is inner
// in one is a leaf in the other. In one tree leaves only receive, so half of the machine's sending idles; in two
// complementary trees every rank sends and receives as many bytes as in a ring, in lg p steps.
//
// First tree: ranks counted from 1 are an in-order binary tree; odd ones are leaves, the level of an even one is the
// number of zeros at its end. Second tree: the same, shifted by one rank. 6 ranks (first: ranks 1, 3, 5 are inner;
// second: 2, 4, 0 are):
//
//              3                           4
//          /       \                   /       \           .
//        1           5               2           0
//      /   \       /               /   \       /           .
//     0     2     4               1     3     5
//
// An inner rank of a tree has up to two children and sends one half-vector up, two down: with its leaf role in the
// other tree (one up) it sends at most 2 S in an all-reduce. For broadcast and reduce the root is above both trees,
// which hold the other ranks.
//
// NCCL numbers its trees from 0 with the root on top, which for an odd number of ranks makes one rank inner in both.
//
// Source: Sanders, Speck, Traff, Two-tree algorithms for full bandwidth broadcast, reduction and scan, Parallel
//   Computing 35 (2009), sections 2 and 3; "Massively scale your deep learning training with NCCL 2.4" (2019).
// Steps: 2 floor(lg p) (all-reduce), 1 + floor(lg (p-1)) (broadcast, reduce), for each chunk, which follow each other.
//   Bytes per rank: at most 2 S (all-reduce), S (broadcast, reduce).

namespace {

// All ranks in a tree without a separate root: which = 0 or 1.
Tree whole_tree(int num_ranks, int which) {
  return make_tree(
      num_ranks, [&](int v) { return in_order_parent(v + 1, num_ranks) - 1; },
      [&](int v) { return (v + which) % num_ranks; });
}

// The root on top of a tree of the others.
Tree rooted_tree(int num_ranks, int root, int which) {
  const int others = num_ranks - 1;
  return make_tree(
      num_ranks, [&](int v) { return v == 0 ? -1 : in_order_parent(v, others); },
      [&](int v) { return v == 0 ? root : (root + 1 + (v - 1 + which) % others) % num_ranks; });
}

}  // namespace

void double_tree(PlanBuilder& builder, const Shape& shape) {
  const int chunks = shape.option("chunks");
  const bool is_all_reduce = builder.kind() == Kind::all_reduce;
  builder.cut_blocks(2 * chunks);
  for (const int which : {0, 1}) {
    const Tree tree =
        is_all_reduce ? whole_tree(shape.num_ranks, which) : rooted_tree(shape.num_ranks, shape.root, which);
    move_along(builder, tree, {which * chunks, chunks}, is_all_reduce ? 2 * which : which);
  }
}

}  // namespace lockstep::algorithms
