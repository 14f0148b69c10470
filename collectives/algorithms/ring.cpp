// Ring: the piece of rank c starts at its successor and collects every rank's part on its way around (reduce-scatter);
// then it travels around once more, finished (all-gather). Every link carries one piece at a time, always.
//
//   reduce-scatter of piece 0, 4 ranks:     1 --in--> 2 --sum of 2--> 3 --sum of 3--> 0 (+ own part: finished)
//   at the same time piece 1 goes 2 -> 3 -> 0 -> 1, piece 2 goes 3 -> 0 -> 1 -> 2, ...
//
// Two directions: half of each piece goes the other way, so that both directions of a link work. Lanes: pieces are cut
// further, and each lane runs its own ring beside the others (NCCL's channels).
//
// Source: Patarasuk, Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, J. Parallel Distrib.
//   Comput. 69 (2009), sections 3 and 4.
// Steps: p-1 (reduce-scatter, all-gather), 2(p-1) (all-reduce). Bytes per rank: S (p-1)/p, 2 S (p-1)/p: the least
//   possible.
#include "collectives/algorithms/ring.h"

#include <algorithm>
#include <numeric>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/numbers.h"

namespace lockstep::algorithms {

using plan::Buffer;
using plan::PlanBuilder;
using plan::Slice;

void ring_reduce_scatter(PlanBuilder& builder, const Ring& ring, const Pieces& pieces, Buffer from,
                         const SumSlot& place, int lane) {
  const int n = static_cast<int>(ring.ranks.size());
  const auto rank_at = [&](int i) { return ring.ranks[static_cast<std::size_t>(wrap(i, n))]; };
  for (int step = 0; step < n - 1; ++step) {
    for (int i = 0; i < n; ++i) {
      const int given = wrap(i - ring.direction * (step + 1), n);
      const int taken = wrap(i - ring.direction * (step + 2), n);
      const Slice sum = step == 0 ? pieces.in(from, given) : place(i, step - 1);
      builder.send(rank_at(i), rank_at(i + ring.direction), sum, lane);
      builder.recv_reduce(rank_at(i), rank_at(i - ring.direction), place(i, step), pieces.in(from, taken), lane);
    }
  }
}

SumSlot in_output(const Ring& ring, const Pieces& pieces) {
  const int n = static_cast<int>(ring.ranks.size());
  const int direction = ring.direction;
  return [n, direction, pieces](int position, int step) {
    return pieces.in(Buffer::output, wrap(position - direction * (step + 2), n));
  };
}

void ring_all_gather(PlanBuilder& builder, const Ring& ring, const Pieces& pieces, const Own& own, int lane,
                     const Needs& needs) {
  const int n = static_cast<int>(ring.ranks.size());
  const auto rank_at = [&](int i) { return ring.ranks[static_cast<std::size_t>(wrap(i, n))]; };
  const auto needed = [&](int i, int piece) { return !needs || needs(wrap(i, n), piece); };
  for (int step = 0; step < n - 1; ++step) {
    for (int i = 0; i < n; ++i) {
      const int given = wrap(i - ring.direction * step, n);
      const int taken = wrap(i - ring.direction * (step + 1), n);
      const Slice src = step == 0 ? own(i) : pieces.in(Buffer::output, given);
      if (needed(i + ring.direction, given)) builder.send(rank_at(i), rank_at(i + ring.direction), src, lane);
      if (needed(i, taken)) {
        builder.recv(rank_at(i), rank_at(i - ring.direction), pieces.in(Buffer::output, taken), lane);
      }
    }
  }
}

void ring_all_reduce(PlanBuilder& builder, const Ring& ring, const Pieces& pieces, Buffer from, int lane) {
  ring_reduce_scatter(builder, ring, pieces, from, in_output(ring, pieces), lane);
  ring_all_gather(
      builder, ring, pieces, [&](int i) { return pieces.in(Buffer::output, i); }, lane);
}

namespace {

// Chunk r * lanes + l of a vector belongs to rank r and travels in lane l; odd lanes go backwards if there are two
// directions.
struct FlatRing {
  explicit FlatRing(const Shape& shape)
      : directions(shape.option("directions")),
        num_lanes(directions * shape.option("lanes")),
        ranks(static_cast<std::size_t>(shape.num_ranks)) {
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  Ring ring(int lane) const { return {ranks, directions == 2 && lane % 2 == 1 ? -1 : 1}; }
  Pieces pieces(int lane) const { return {lane, 1, num_lanes}; }

  int directions;
  int num_lanes;
  std::vector<int> ranks;
};

}  // namespace

plan::Plan ring_all_reduce(const Shape& shape) {
  const FlatRing flat(shape);
  PlanBuilder builder(collectives::Kind::all_reduce, shape.num_ranks, 0, shape.num_ranks * flat.num_lanes);
  for (int lane = 0; lane < flat.num_lanes; ++lane) {
    ring_all_reduce(builder, flat.ring(lane), flat.pieces(lane), Buffer::input, lane);
  }
  return builder.finish("ring");
}

// A rank keeps no vector of partial sums: two slots per lane alternate, one being sent while the other is computed.
plan::Plan ring_reduce_scatter(const Shape& shape) {
  const FlatRing flat(shape);
  const int last = shape.num_ranks - 2;
  PlanBuilder builder(collectives::Kind::reduce_scatter, shape.num_ranks, 0, flat.num_lanes);
  const int slots = builder.take_scratch(std::min(last, 2) * flat.num_lanes);
  for (int lane = 0; lane < flat.num_lanes; ++lane) {
    const SumSlot place = [&](int, int step) {
      return step == last ? plan::output(lane) : plan::scratch(slots + step % 2 * flat.num_lanes + lane);
    };
    ring_reduce_scatter(builder, flat.ring(lane), flat.pieces(lane), Buffer::input, place, lane);
  }
  return builder.finish("ring");
}

plan::Plan ring_all_gather(const Shape& shape) {
  const FlatRing flat(shape);
  PlanBuilder builder(collectives::Kind::all_gather, shape.num_ranks, 0, flat.num_lanes);
  for (int lane = 0; lane < flat.num_lanes; ++lane) {
    const Pieces pieces = flat.pieces(lane);
    for (int r = 0; r < shape.num_ranks; ++r) {
      builder.copy(r, pieces.in(Buffer::output, r), plan::input(lane), lane);
    }
    ring_all_gather(
        builder, flat.ring(lane), pieces, [&](int) { return plan::input(lane); }, lane);
  }
  return builder.finish("ring");
}

}  // namespace lockstep::algorithms
