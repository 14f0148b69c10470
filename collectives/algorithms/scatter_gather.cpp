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
#include <algorithm>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/binomial.h"
#include "collectives/algorithms/ring.h"

namespace lockstep::algorithms {

using collectives::Kind;
using plan::Buffer;
using plan::PlanBuilder;
using plan::Slice;

namespace {

Ring ring_from(int root, int num_ranks) {
  Ring ring;
  for (int v = 0; v < num_ranks; ++v) ring.ranks.push_back((root + v) % num_ranks);
  return ring;
}

}  // namespace

plan::Plan scatter_allgather_broadcast(const Shape& shape) {
  const int n = shape.num_ranks;
  const Ring ring = ring_from(shape.root, n);
  const auto rank_of = [&](int v) { return ring.ranks[static_cast<std::size_t>(v)]; };
  PlanBuilder builder(Kind::broadcast, n, shape.root, n);
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
  return builder.finish("scatter_allgather");
}

plan::Plan reduce_scatter_gather_reduce(const Shape& shape) {
  const int n = shape.num_ranks;
  const int last = n - 2;
  const Ring ring = ring_from(shape.root, n);
  const auto rank_of = [&](int v) { return ring.ranks[static_cast<std::size_t>(v)]; };
  PlanBuilder builder(Kind::reduce, n, shape.root, n);
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
  return builder.finish("reduce_scatter_gather");
}

}  // namespace lockstep::algorithms
