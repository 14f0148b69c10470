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
#include <fmt/format.h>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/numbers.h"
#include "collectives/algorithms/ring.h"

namespace lockstep::algorithms {

using plan::Buffer;
using plan::PlanBuilder;

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

plan::Plan hierarchical_all_reduce(const Shape& shape) {
  const int size = group_size(shape);
  PlanBuilder builder(collectives::Kind::all_reduce, shape.num_ranks, 0, shape.num_ranks);
  add_two_level(builder, {size, shape.num_ranks / size, size, 1}, 0, 0);
  return builder.finish("hierarchical");
}

plan::Plan ring_2d_all_reduce(const Shape& shape) {
  const int columns = divisor_option(shape, "columns");
  const int rows = shape.num_ranks / columns;
  PlanBuilder builder(collectives::Kind::all_reduce, shape.num_ranks, 0, 2 * shape.num_ranks);
  add_two_level(builder, {columns, rows, columns, 1}, 0, 0);
  add_two_level(builder, {rows, columns, 1, columns}, shape.num_ranks, 1);
  return builder.finish("ring_2d");
}

}  // namespace lockstep::algorithms
