// Gather and scatter along a binomial tree. With ranks counted from the root, the blocks of a subtree are neighbours,
// so each edge carries one slice. Only at the root, whose blocks are in rank order, a slice may wrap around and is sent
// as two.
//
//   scatter, 8 ranks from root 0:   0 -> 4 (blocks 4..7), 2 (2, 3), 1 (1);   4 -> 6 (6, 7), 5;   2 -> 3;   6 -> 7
//
// Source: Thakur, Rabenseifner, Gropp 2005, section 4.2 (scatter within broadcast); MPICH, gather_intra_binomial.c,
//   scatter_intra_binomial.c.
// Steps: floor(lg p); ceil(lg p) rounds. Bytes per rank, S = p blocks: S (p-1)/p at the root of scatter, (S/p) times
// its subtree elsewhere.
#include <algorithm>
#include <vector>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/building_blocks.h"

namespace lockstep::algorithms {

using plan::Buffer;
using plan::PlanBuilder;
using plan::Slice;

namespace {

// Slices of the tree's vertices in the buffers of each rank.
class Subtrees {
 public:
  Subtrees(int num_ranks, int root) : n_(num_ranks), root_(root) {}
  int rank_of(int v) const { return (root_ + v) % n_; }
  // Slices of child's subtree in its parent's memory: in `buffer` if the parent is the root. An inner vertex v keeps
  // block v + i in scratch slot i.
  std::vector<Slice> at_parent(int child, Buffer buffer) const {
    const int count = binomial_size(child, n_);
    const int parent = binomial_parent(child);
    if (parent != 0) return {plan::scratch(child - parent, count)};
    const int first = rank_of(child);
    if (first + count <= n_) return {{buffer, first, count}};
    return {{buffer, first, n_ - first}, {buffer, 0, first + count - n_}};
  }

 private:
  int n_;
  int root_;
};

}  // namespace

void binomial_scatter(PlanBuilder& builder, const Shape& shape) {
  const int n = shape.num_ranks;
  const Subtrees trees(n, shape.root);
  if (n > 2) builder.take_scratch(largest_inner_size(n));
  for (int v = 0; v < n; ++v) {
    const int r = trees.rank_of(v);
    const bool is_leaf = binomial_size(v, n) == 1;
    if (v > 0) {
      int slot = 0;
      for (const Slice& part : trees.at_parent(v, Buffer::input)) {
        builder.recv(r, trees.rank_of(binomial_parent(v)), is_leaf ? plan::output(0) : plan::scratch(slot, part.count));
        slot += part.count;
      }
    }
    for_each_child_down(v, n, [&](int child) {
      for (const Slice& part : trees.at_parent(child, Buffer::input)) builder.send(r, trees.rank_of(child), part);
    });
    if (!is_leaf) builder.copy(r, plan::output(0), v == 0 ? plan::input(r) : plan::scratch(0));
  }
}

void binomial_gather(PlanBuilder& builder, const Shape& shape) {
  const int n = shape.num_ranks;
  const Subtrees trees(n, shape.root);
  if (n > 2) builder.take_scratch(largest_inner_size(n));
  for (int v = 0; v < n; ++v) {
    const int r = trees.rank_of(v);
    const bool is_leaf = binomial_size(v, n) == 1;
    if (!is_leaf) builder.copy(r, v == 0 ? plan::output(r) : plan::scratch(0), plan::input(0));
    for_each_child_up(v, n, [&](int child) {
      for (const Slice& part : trees.at_parent(child, Buffer::output)) builder.recv(r, trees.rank_of(child), part);
    });
    if (v > 0) {
      int slot = 0;
      for (const Slice& part : trees.at_parent(v, Buffer::output)) {
        builder.send(r, trees.rank_of(binomial_parent(v)), is_leaf ? plan::input(0) : plan::scratch(slot, part.count));
        slot += part.count;
      }
    }
  }
}

// Large broadcast and reduce over all ranks' links: the vector is cut into p pieces, and every rank works on one.
//
// scatter_allgather (broadcast): binomial scatter of the pieces from the root, then a ring all-gather, in which no rank
//   receives pieces that it had to pass on in the scatter.
// reduce_scatter_gather (reduce): ring reduce-scatter, then binomial gather to the root: the same backwards.
//
// Ranks are counted from the root; piece v belongs to the v-th. Source: van de Geijn's algorithm as in Thakur,
//   Rabenseifner, Gropp 2005, sections 4.2 and 4.4; MPICH, bcast_intra_scatter_ring_allgather.c.
// Rounds: ceil(lg p) + p - 1. Bytes at the busiest rank: 2 S (p-1)/p (broadcast: the root), at most
//   S (p-1)/p + S/2 (reduce).

namespace {

Ring ring_from(int root, int num_ranks) {
  Ring ring;
  for (int v = 0; v < num_ranks; ++v) ring.ranks.push_back((root + v) % num_ranks);
  return ring;
}

}  // namespace

void scatter_allgather_broadcast(PlanBuilder& builder, const Shape& shape) {
  const int n = shape.num_ranks;
  const Ring ring = ring_from(shape.root, n);
  const auto rank_of = [&](int v) { return ring.ranks[static_cast<std::size_t>(v)]; };
  builder.cut_blocks(n);
  for (int v = 0; v < n; ++v) {
    const Buffer source = v == 0 ? Buffer::input : Buffer::output;
    if (v > 0) builder.recv(rank_of(v), rank_of(binomial_parent(v)), plan::output(v, binomial_size(v, n)));
    for_each_child_down(v, n, [&](int child) {
      builder.send(rank_of(v), rank_of(child), {source, child, binomial_size(child, n)});
    });
  }
  builder.copy(shape.root, plan::output(0, n), plan::input(0, n));
  const auto needs = [n](int v, int piece) { return piece < v || piece >= v + binomial_size(v, n); };
  ring_all_gather(
      builder, ring, {0, 1, 1}, [](int v) { return plan::output(v); }, 0, needs);
}

void reduce_scatter_gather_reduce(PlanBuilder& builder, const Shape& shape) {
  const int n = shape.num_ranks;
  const int last = n - 2;
  const Ring ring = ring_from(shape.root, n);
  const auto rank_of = [&](int v) { return ring.ranks[static_cast<std::size_t>(v)]; };
  builder.cut_blocks(n);
  const int sums = builder.take_scratch(std::min(last, 2));
  const int gathered = builder.take_scratch(largest_inner_size(n));  // slot i of vertex v: piece v + i
  const auto place = [&](int v, int step) {
    if (step < last) return plan::scratch(sums + step % 2);
    return v == 0 ? plan::output(0) : plan::scratch(gathered);
  };
  ring_reduce_scatter(builder, ring, {0, 1, 1}, Buffer::input, place, 0);
  for (int v = 0; v < n; ++v) {
    for_each_child_up(v, n, [&](int child) {
      const int count = binomial_size(child, n);
      const Slice into = v == 0 ? plan::output(child, count) : plan::scratch(gathered + child - v, count);
      builder.recv(rank_of(v), rank_of(child), into);
    });
    if (v > 0) {
      builder.send(rank_of(v), rank_of(binomial_parent(v)), plan::scratch(gathered, binomial_size(v, n)));
    }
  }
}

}  // namespace lockstep::algorithms
