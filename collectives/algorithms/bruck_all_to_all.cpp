// Bruck's all-to-all: ceil(lg p) messages instead of p-1, for blocks so small that a message costs more than its bytes.
//
// A block that is to travel a distance of i ranks travels in hops of powers of two, the bits of i, small ones first. In
// the step of bit b a rank sends to rank+b all blocks it holds whose distance has that bit, packed contiguously.
//
//   distance 5 = 101:   r --1--> r+1 --4--> r+5
//
// A block that arrives stays where it was received until its next bit is due, and is copied from there into that step's
// message, or into output: one copy per hop and one at the end. Each step has its own scratch for arrivals.
//
// Source: Bruck, Ho, Kipnis, Upfal, Weathersby, IEEE TPDS 8 (1997), section 3; MPICH, alltoall_intra_brucks.c. Steps:
// ceil(lg p). Bytes per rank, S = p blocks: S/2 lg p for powers of two; else (S/p) times the number of bits set in
//   1 .. p-1.
#include <vector>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/numbers.h"

namespace lockstep::algorithms {

using plan::PlanBuilder;
using plan::Slice;

namespace {

std::vector<int> distances_with(int bit, int num_ranks) {
  std::vector<int> distances;
  for (int i = bit; i < num_ranks; ++i) {
    if ((i & bit) != 0) distances.push_back(i);
  }
  return distances;
}

struct Room {
  int packed;    // the message that is being packed; two of them alternate
  int arrivals;  // for all steps, one after the other
};

void add_rank(PlanBuilder& builder, int p, int r, Room room, int half) {
  std::vector<Slice> held;  // by the block's initial distance
  for (int i = 0; i < p; ++i) held.push_back(plan::input(wrap(r + i, p)));
  int arrived = room.arrivals;
  int packed = room.packed;
  for (int bit = 1; bit < p; bit *= 2) {
    const std::vector<int> moving = distances_with(bit, p);
    const int count = static_cast<int>(moving.size());
    for (int k = 0; k < count; ++k) {
      Slice& block = held[static_cast<std::size_t>(moving[static_cast<std::size_t>(k)])];
      builder.copy(r, plan::scratch(packed + k), block);
      block = plan::scratch(arrived + k);
    }
    builder.send(r, wrap(r + bit, p), plan::scratch(packed, count));
    builder.recv(r, wrap(r - bit, p), plan::scratch(arrived, count));
    arrived += count;
    packed = packed == room.packed ? room.packed + half : room.packed;
  }
  for (int i = 0; i < p; ++i) builder.copy(r, plan::output(wrap(r - i, p)), held[static_cast<std::size_t>(i)]);
}

}  // namespace

plan::Plan bruck_all_to_all(const Shape& shape) {
  const int p = shape.num_ranks;
  const int half = p / 2;  // no step moves more blocks: in 1 .. p-1 no bit is set more often
  int hops = 0;
  for (int bit = 1; bit < p; bit *= 2) hops += static_cast<int>(distances_with(bit, p).size());
  PlanBuilder builder(collectives::Kind::all_to_all, p, 0, 1);
  const int packed = builder.take_scratch(p > 2 ? 2 * half : half);
  const Room room{packed, builder.take_scratch(hops)};
  for (int r = 0; r < p; ++r) add_rank(builder, p, r, room, half);
  return builder.finish("bruck");
}

}  // namespace lockstep::algorithms
