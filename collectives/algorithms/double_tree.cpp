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
#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/tree.h"

namespace lockstep::algorithms {

using plan::PlanBuilder;

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

plan::Plan double_tree_all_reduce(const Shape& shape) {
  const int chunks = shape.option("chunks");
  PlanBuilder builder(collectives::Kind::all_reduce, shape.num_ranks, 0, 2 * chunks);
  for (const int which : {0, 1}) {
    tree_all_reduce(builder, whole_tree(shape.num_ranks, which), {which * chunks, chunks}, 2 * which);
  }
  return builder.finish("double_tree");
}

plan::Plan double_tree_broadcast(const Shape& shape) {
  const int chunks = shape.option("chunks");
  PlanBuilder builder(collectives::Kind::broadcast, shape.num_ranks, shape.root, 2 * chunks);
  for (const int which : {0, 1}) {
    tree_broadcast(builder, rooted_tree(shape.num_ranks, shape.root, which), {which * chunks, chunks}, which);
  }
  return builder.finish("double_tree");
}

plan::Plan double_tree_reduce(const Shape& shape) {
  const int chunks = shape.option("chunks");
  PlanBuilder builder(collectives::Kind::reduce, shape.num_ranks, shape.root, 2 * chunks);
  for (const int which : {0, 1}) {
    tree_reduce(builder, rooted_tree(shape.num_ranks, shape.root, which), {which * chunks, chunks}, which);
  }
  return builder.finish("double_tree");
}

}  // namespace lockstep::algorithms
