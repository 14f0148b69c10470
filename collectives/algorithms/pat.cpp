// PAT, Parallel Aggregated Trees: all-gather and reduce-scatter for any number of ranks in few messages, with the far
// peers first (when messages are still small), and with bounded buffers.
//
// The block of rank b reaches rank b + o along a binomial tree over the offsets o: from offset o with its lowest bit
// cleared to o. All ranks' trees are this one, shifted. So for each offset o > 0 a rank receives one block, from rank -
// lowest_bit(o), and may aggregate blocks of different trees that go the same way. Let P be the power of two that is p
// or next above it, A the largest number of blocks per message, and D = P / A:
//   1. offsets 0, D, 2D, ...: lg A steps, far ones first, with 1, 2, ..., A/2 blocks per message;
//   2. from each of those A offsets, the D-1 offsets up to the next: one by one, depth first, A blocks per message.
//
//   p = 8, A = 2, D = 4:   0 -> 4 | 0,4 -> 1,5 | 0,4 -> 2,6 | 2,6 -> 3,7
//          A = 4, D = 2:   0 -> 4 | 0,4 -> 2,6 | 0,2,4,6 -> 1,3,5,7
//
// Depth first, so that an offset's blocks are needed only until its subtree is done: A (1 + lg D) slots of buffer,
// whatever p is. The blocks of a message are contiguous in the buffer. reduce_scatter is all_gather read backwards,
// adding where the other copies: partial sums flow from offset o to o with its lowest bit cleared.
//
// Source: Jeaugey, PAT: a new algorithm for all-gather and reduce-scatter operations at scale, arXiv:2506.20252 (2025).
// Steps: lg A + min(D, p) - 1: ceil(lg p) with the most aggregation, p-1 messages with A = 1. Bytes per rank:
//   S (p-1)/p, S = p blocks.
#include "collectives/algorithms/building_blocks.h"

#include <algorithm>
#include <set>

#include "collectives/algorithms/algorithm.h"

namespace lockstep::algorithms {

using plan::PlanBuilder;
using plan::Slice;

PatTrees::PatTrees(int num_ranks, int aggregation) : num_ranks_(num_ranks) {
  const int most = std::max(1, ceil_power_of_two(num_ranks) / 2);
  const int trees = aggregation == 0 ? most : std::min(most, floor_power_of_two(aggregation));
  spacing_ = ceil_power_of_two(num_ranks) / trees;
  std::vector<int> order{0};  // offsets / spacing, in buffer order
  int front = 0;              // the slot of order[0]; corrected at the end
  for (int half = trees / 2; half >= 1; half /= 2) {
    // The largest is always at the back, and it alone may have no partner: so the slots to send are contiguous.
    const bool all = (order.back() + half) * spacing_ < num_ranks;
    const int size = static_cast<int>(order.size());
    const int count = all ? size : size - 1;
    const int added = all ? front + size : front - count;
    levels_.push_back({half * spacing_, front, added, count});
    std::vector<int> more(order.begin(), order.begin() + count);
    for (int& a : more) a += half;
    order.insert(all ? order.end() : order.begin(), more.begin(), more.end());
    front = std::min(front, added);
  }
  for (Level& level : levels_) {
    level.from -= front;
    level.to -= front;
  }
  for (const int a : order) offsets_.push_back(a * spacing_);
}

int PatTrees::count_at(int inner) const {
  return static_cast<int>(offsets_.size()) - (offsets_.back() + inner < num_ranks_ ? 0 : 1);
}

namespace {

constexpr int kRoot = 0;  // inner offset of the trees' roots

// Region in which a rank keeps the blocks of one inner offset: one slot per tree, chosen by the offset's lowest bit.
int region_index(int inner) {
  return inner == kRoot ? 0 : 1 + log2_of_power(lowest_bit(inner));
}

void gather_rank(PlanBuilder& builder, const PatTrees& trees, int p, int r, int slots) {
  const int width = trees.num_trees();
  const bool packed = width > 1;  // a message of one block needs no buffer: it is sent from output
  const auto region = [&](int inner) { return slots + region_index(inner) * width; };
  const auto block = [&](int offset) { return plan::output(wrap(r - offset, p)); };
  const auto unpack = [&](int first, int inner, int from, int count) {
    for (int i = 0; i < count; ++i) {
      builder.copy(r, block(trees.offset(from + i) + inner), plan::scratch(first + from + i));
    }
  };
  builder.copy(r, plan::output(r), plan::input(0));
  if (packed) builder.copy(r, plan::scratch(slots + trees.top_slot()), plan::input(0));
  for (const PatTrees::Level& level : trees.levels()) {
    builder.send(r, wrap(r + level.distance, p), plan::scratch(slots + level.from, level.count));
    builder.recv(r, wrap(r - level.distance, p), plan::scratch(slots + level.to, level.count));
    unpack(slots, kRoot, level.to, level.count);
  }
  for (int inner = 1; inner < trees.inner_end(); ++inner) {
    const int distance = lowest_bit(inner);
    const int parent = inner - distance;
    const int count = trees.count_at(inner);
    builder.send(r, wrap(r + distance, p), packed ? plan::scratch(region(parent), count) : block(parent));
    builder.recv(r, wrap(r - distance, p), packed ? plan::scratch(region(inner), count) : block(inner));
    if (packed) unpack(region(inner), inner, 0, count);
  }
}

// Partial sums of one rank. Each begins as the rank's own input, which is copied only if a message needs it packed.
class PartialSums {
 public:
  PartialSums(PlanBuilder& builder, const PatTrees& trees, int num_ranks, int rank, int slots)
      : builder_(builder), trees_(trees), p_(num_ranks), r_(rank), slots_(slots) {}

  Slice now(int inner, int count) {
    if (begun_.count(inner) != 0) return stored(inner, count);
    if (trees_.num_trees() == 1) return plan::input(wrap(r_ - inner, p_));
    for (int i = 0; i < trees_.count_at(inner); ++i) {
      builder_.copy(r_, plan::scratch(first_slot(inner) + i), plan::input(wrap(r_ - inner - trees_.offset(i), p_)));
    }
    begun_.insert(inner);
    return stored(inner, count);
  }
  void add_from(int peer, int inner, int count) {
    const Slice sum = now(inner, count);
    builder_.recv_reduce(r_, peer, stored(inner, count), sum);
    begun_.insert(inner);
  }

 private:
  int first_slot(int inner) const { return slots_ + region_index(inner) * trees_.num_trees(); }
  Slice stored(int inner, int count) const {
    const bool finished = inner == kRoot && trees_.num_trees() == 1;
    return finished ? plan::output(0) : plan::scratch(first_slot(inner), count);
  }

  PlanBuilder& builder_;
  const PatTrees& trees_;
  int p_;
  int r_;
  int slots_;
  std::set<int> begun_;
};

void reduce_rank(PlanBuilder& builder, const PatTrees& trees, int p, int r, int slots) {
  PartialSums sums(builder, trees, p, r, slots);
  for (int inner = trees.inner_end() - 1; inner >= 1; --inner) {
    const int distance = lowest_bit(inner);
    const int count = trees.count_at(inner);
    builder.send(r, wrap(r - distance, p), sums.now(inner, count));
    sums.add_from(wrap(r + distance, p), inner - distance, count);
  }
  for (auto level = trees.levels().rbegin(); level != trees.levels().rend(); ++level) {
    const Slice sum = plan::scratch(slots + level->from, level->count);
    const bool is_last = std::next(level) == trees.levels().rend();
    builder.send(r, wrap(r - level->distance, p), plan::scratch(slots + level->to, level->count));
    builder.recv_reduce(r, wrap(r + level->distance, p), is_last ? plan::output(0) : sum, sum);
  }
}

}  // namespace

void pat_all_gather(PlanBuilder& builder, const Shape& shape) {
  const PatTrees trees(shape.num_ranks, shape.option("aggregation"));
  const int slots = trees.num_trees() > 1 ? builder.take_scratch(trees.num_slots()) : 0;
  for (int r = 0; r < shape.num_ranks; ++r) gather_rank(builder, trees, shape.num_ranks, r, slots);
}

void pat_reduce_scatter(PlanBuilder& builder, const Shape& shape) {
  const PatTrees trees(shape.num_ranks, shape.option("aggregation"));
  const int slots = builder.take_scratch(trees.num_slots());
  for (int r = 0; r < shape.num_ranks; ++r) reduce_rank(builder, trees, shape.num_ranks, r, slots);
}

}  // namespace lockstep::algorithms
