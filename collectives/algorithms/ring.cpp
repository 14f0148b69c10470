// Ring: the piece of rank c starts at its successor and collects every rank's part on its way around (reduce-scatter);
// then it travels around once more, finished (all-gather). Every link carries one piece at a time, always.
//
//   reduce-scatter of piece 0, 4 ranks:     1 --in--> 2 --sum of 2--> 3 --sum of 3--> 0 (+ own part: finished)
//   at the same time piece 1 goes 2 -> 3 -> 0 -> 1, piece 2 goes 3 -> 0 -> 1 -> 2, ...
//
// Two directions: half of each piece goes the other way, so that both directions of a link work. Lanes: pieces are cut
// further, and each lane runs its own ring in parallel (NCCL's channels).
//
// Source: Patarasuk, Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, J. Parallel Distrib.
//   Comput. 69 (2009), sections 3 and 4.
// Steps: p-1 (reduce-scatter, all-gather), 2(p-1) (all-reduce). Bytes per rank: S (p-1)/p, 2 S (p-1)/p: the least
//   possible.
#include "collectives/algorithms/building_blocks.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "collectives/algorithms/algorithm.h"

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

void ring_all_reduce(PlanBuilder& builder, const Shape& shape) {
  const FlatRing flat(shape);
  builder.cut_blocks(shape.num_ranks * flat.num_lanes);
  for (int lane = 0; lane < flat.num_lanes; ++lane) {
    ring_all_reduce(builder, flat.ring(lane), flat.pieces(lane), Buffer::input, lane);
  }
}

// A rank keeps no vector of partial sums: two slots per lane alternate, one being sent while the other is computed.
void ring_reduce_scatter(PlanBuilder& builder, const Shape& shape) {
  const FlatRing flat(shape);
  const int last = shape.num_ranks - 2;
  builder.cut_blocks(flat.num_lanes);
  const int slots = builder.take_scratch(std::min(last, 2) * flat.num_lanes);
  for (int lane = 0; lane < flat.num_lanes; ++lane) {
    const SumSlot place = [&](int, int step) {
      return step == last ? plan::output(lane) : plan::scratch(slots + step % 2 * flat.num_lanes + lane);
    };
    ring_reduce_scatter(builder, flat.ring(lane), flat.pieces(lane), Buffer::input, place, lane);
  }
}

void ring_all_gather(PlanBuilder& builder, const Shape& shape) {
  const FlatRing flat(shape);
  builder.cut_blocks(flat.num_lanes);
  for (int lane = 0; lane < flat.num_lanes; ++lane) {
    const Pieces pieces = flat.pieces(lane);
    for (int r = 0; r < shape.num_ranks; ++r) {
      builder.copy(r, pieces.in(Buffer::output, r), plan::input(lane), lane);
    }
    ring_all_gather(
        builder, flat.ring(lane), pieces, [&](int) { return plan::input(lane); }, lane);
  }
}

// Two-level all-reduce: ranks in groups; reduce-scatter inside each group, all-reduce between ranks of equal position
// in their groups, all-gather inside. All three are rings.
//
//   2 groups of 3:   (0 1 2) (3 4 5)     reduce-scatter: 0, 3 hold third 0; 1, 4 third 1; 2, 5 third 2
//                     | | |   | | |
//                     all-reduce 0 <-> 3, 1 <-> 4, 2 <-> 5, then all-gather
//
// hierarchical: groups are neighbours (the ranks of a host), so a host's port carries S/g for each of its ranks.
// ring_2d: ranks are a grid of rows. Half of the data goes along rows first, then columns, the other half along columns
//   first, so that the links of both dimensions work all the time.
//
// Source: "Massively scale your deep learning training with NCCL 2.4" (2019), 2D ring; Ying et al., Image
//   classification at supercomputer scale (2018), 2-D gradient summation on a torus; Horovod's hierarchical all-reduce.
// Steps: 2 (g-1) + 2 (m-1), m = p/g. Bytes per rank: 2 S (g-1)/g inside and 2 (S/g) (m-1)/m between: in all
//   2 S (p-1)/p.

namespace {

// How ranks are split: `size` positions per group, `count` groups.
struct Groups {
  int size;
  int count;
  int group_stride;  // between the same position of two groups
  int place_stride;  // between two positions of a group
  int rank(int group, int place) const { return group * group_stride + place * place_stride; }
};

Ring ring_in_group(const Groups& groups, int group) {
  Ring ring;
  for (int place = 0; place < groups.size; ++place) ring.ranks.push_back(groups.rank(group, place));
  return ring;
}

Ring ring_between_groups(const Groups& groups, int place) {
  Ring ring;
  for (int group = 0; group < groups.count; ++group) ring.ranks.push_back(groups.rank(group, place));
  return ring;
}

// All-reduces size * count chunks from `first` on.
void add_two_level(PlanBuilder& builder, const Groups& groups, int first, int lane) {
  const Pieces in_group{first, groups.count, groups.count};
  for (int group = 0; group < groups.count; ++group) {
    const Ring ring = ring_in_group(groups, group);
    ring_reduce_scatter(builder, ring, in_group, Buffer::input, in_output(ring, in_group), lane);
  }
  const Buffer reduced = groups.size == 1 ? Buffer::input : Buffer::output;
  for (int place = 0; place < groups.size; ++place) {
    const Pieces between{first + place * groups.count, 1, 1};
    ring_all_reduce(builder, ring_between_groups(groups, place), between, reduced, lane);
  }
  for (int group = 0; group < groups.count; ++group) {
    ring_all_gather(
        builder, ring_in_group(groups, group), in_group, [&](int place) { return in_group.in(Buffer::output, place); },
        lane);
  }
}

int largest_divisor_to_square_root(int n) {
  int best = 1;
  for (int d = 2; d * d <= n; ++d) best = n % d == 0 ? d : best;
  return best;
}

// The option's value; 0 is replaced by the divisor that makes the two levels most alike.
int divisor_option(const Shape& shape, std::string_view name) {
  const int value = shape.option(name);
  return value != 0 ? value : shape.num_ranks / largest_divisor_to_square_root(shape.num_ranks);
}

}  // namespace

std::optional<std::string> refuse_non_divisor(const Shape& shape, std::string_view name) {
  const int value = shape.option(name);
  if (value == 0 || shape.num_ranks % value == 0) return std::nullopt;
  std::string divisors;
  for (int d = 1; d <= shape.num_ranks; ++d) {
    if (shape.num_ranks % d == 0) divisors += fmt::format(" {}", d);
  }
  return fmt::format("{}={} does not divide {} ranks; possible:{}, or 0 to choose", name, value, shape.num_ranks,
                     divisors);
}

int group_size(const Shape& shape) {
  return divisor_option(shape, "group");
}

void hierarchical_all_reduce(PlanBuilder& builder, const Shape& shape) {
  const int size = group_size(shape);
  builder.cut_blocks(shape.num_ranks);
  add_two_level(builder, {size, shape.num_ranks / size, size, 1}, 0, 0);
}

void ring_2d_all_reduce(PlanBuilder& builder, const Shape& shape) {
  const int columns = divisor_option(shape, "columns");
  const int rows = shape.num_ranks / columns;
  builder.cut_blocks(2 * shape.num_ranks);
  add_two_level(builder, {columns, rows, columns, 1}, 0, 0);
  add_two_level(builder, {rows, columns, 1, columns}, shape.num_ranks, 1);
}

}  // namespace lockstep::algorithms
