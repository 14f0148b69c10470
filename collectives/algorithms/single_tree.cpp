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
#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/binomial.h"
#include "collectives/algorithms/tree.h"

namespace lockstep::algorithms {

using collectives::Kind;
using plan::PlanBuilder;

namespace {

using Writer = void (*)(PlanBuilder&, const Tree&, ChunkRange, int lane);

plan::Plan make(Kind kind, Writer write, const Shape& shape, int chunks, const VertexMap& parent_of, const char* name) {
  PlanBuilder builder(kind, shape.num_ranks, shape.root, chunks);
  write(builder, make_rooted_tree(shape.num_ranks, shape.root, parent_of), {0, chunks}, 0);
  return builder.finish(name);
}

}  // namespace

plan::Plan tree_all_reduce(const Shape& shape) {
  const int radix = shape.option("radix");
  return make(
      Kind::all_reduce, tree_all_reduce, shape, shape.option("chunks"),
      [radix](int v) { return knomial_parent(v, radix); }, "tree");
}

plan::Plan binary_tree_all_reduce(const Shape& shape) {
  return make(Kind::all_reduce, tree_all_reduce, shape, shape.option("chunks"), heap_parent, "binary_tree");
}

plan::Plan chain_broadcast(const Shape& shape) {
  return make(Kind::broadcast, tree_broadcast, shape, shape.option("chunks"), chain_parent, "chain");
}

plan::Plan chain_reduce(const Shape& shape) {
  return make(Kind::reduce, tree_reduce, shape, shape.option("chunks"), chain_parent, "chain");
}

plan::Plan binary_tree_broadcast(const Shape& shape) {
  return make(Kind::broadcast, tree_broadcast, shape, shape.option("chunks"), heap_parent, "binary_tree");
}

plan::Plan binary_tree_reduce(const Shape& shape) {
  return make(Kind::reduce, tree_reduce, shape, shape.option("chunks"), heap_parent, "binary_tree");
}

plan::Plan binomial_broadcast(const Shape& shape) {
  return make(Kind::broadcast, tree_broadcast, shape, 1, binomial_parent, "binomial");
}

plan::Plan binomial_reduce(const Shape& shape) {
  return make(Kind::reduce, tree_reduce, shape, 1, binomial_parent, "binomial");
}

plan::Plan direct_broadcast(const Shape& shape) {
  return make(Kind::broadcast, tree_broadcast, shape, 1, star_parent, "direct");
}

plan::Plan direct_reduce(const Shape& shape) {
  return make(Kind::reduce, tree_reduce, shape, 1, star_parent, "direct");
}

}  // namespace lockstep::algorithms
