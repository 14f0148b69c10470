// All-to-all, block by block: every block goes straight to its destination.
//
// pairwise: p-1 steps; in step i each rank sends to rank+i and receives from rank-i, so no rank receives from two at
// once. direct: the same sends, all started first; then the receives. One step if the machine can do them at once. A
// plan does not contain block sizes, so all_to_all_v is the same plan.
//
// Source: Thakur, Rabenseifner, Gropp 2005, section 4.6; MPICH, alltoall_intra_pairwise.c, alltoall_intra_scattered.c.
// Steps: p-1; 1. Bytes per rank, S = p blocks: S (p-1)/p.
#include "collectives/algorithms/algorithm.h"

#include <vector>

#include "collectives/algorithms/building_blocks.h"

namespace lockstep::algorithms {

using plan::PlanBuilder;
using plan::Slice;

void pairwise_all_to_all(PlanBuilder& builder, const Shape& shape) {
  const int p = shape.num_ranks;
  for (int r = 0; r < p; ++r) {
    builder.copy(r, plan::output(r), plan::input(r));
    for (int i = 1; i < p; ++i) {
      builder.send(r, wrap(r + i, p), plan::input(wrap(r + i, p)));
      builder.recv(r, wrap(r - i, p), plan::output(wrap(r - i, p)));
    }
  }
}

void direct_all_to_all(PlanBuilder& builder, const Shape& shape) {
  const int p = shape.num_ranks;
  for (int r = 0; r < p; ++r) {
    for_each_peer(r, p, [&](int peer) { builder.send(r, peer, plan::input(peer)); });
    builder.copy(r, plan::output(r), plan::input(r));
    for_each_peer(r, p, [&](int peer) { builder.recv(r, peer, plan::output(peer)); });
  }
}

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
  int arrivals;  // for all steps, in order
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

void bruck_all_to_all(PlanBuilder& builder, const Shape& shape) {
  const int p = shape.num_ranks;
  const int half = p / 2;  // no step moves more blocks: in 1 .. p-1 no bit is set more often
  int hops = 0;
  for (int bit = 1; bit < p; bit *= 2) hops += static_cast<int>(distances_with(bit, p).size());
  const int packed = builder.take_scratch(p > 2 ? 2 * half : half);
  const Room room{packed, builder.take_scratch(hops)};
  for (int r = 0; r < p; ++r) add_rank(builder, p, r, room, half);
}

// Two-level all-to-all: between hosts, few big messages instead of many small ones. m groups of g ranks, rank = group *
// g + position:
//   1. between groups: the rank at the same position in each other group gets all g blocks for its group, in one
//   message;
//   2. inside the group: the m blocks that arrived for position l are packed and sent to l in one message.
//
//   2 groups of 2, rank 0's blocks 0 1 | 2 3:   (2 3) go to rank 2, which keeps block 2 and passes 3 on to rank 3
//
// Source: Traff, Rougier, MPI collectives and datatypes for hierarchical all-to-all communication, EuroMPI 2014. Inside
//   first, it is NCCL's PXN ("Doubling all2all performance with NCCL 2.12", 2022).
// Steps: 2 (all peers of a level at once); messages per rank: (m-1) + (g-1). Bytes per rank, S = p blocks: S (m-1)/m
//   between groups and S (g-1)/g inside.

namespace {

class TwoLevel {
 public:
  TwoLevel(PlanBuilder& builder, int g, int m)
      : builder_(builder),
        g_(g),
        m_(m),
        arrived_(builder.take_scratch(m > 1 ? g * m : 0)),
        packed_(builder.take_scratch(g > 1 ? g * m : 0)),
        handed_(builder.take_scratch(g > 1 ? g * m : 0)) {}

  void exchange_between_groups(int group, int place) {
    const int r = group * g_ + place;
    for (int i = 1; i < m_; ++i) {
      const int to = wrap(group + i, m_);
      builder_.send(r, to * g_ + place, plan::input(to * g_, g_));
    }
    for (int i = 1; i < m_; ++i) {
      const int from = wrap(group - i, m_);
      builder_.recv(r, from * g_ + place, plan::scratch(arrived_ + from * g_, g_));
    }
  }

  void exchange_in_group(int group, int place) {
    const int r = group * g_ + place;
    for (int from = 0; from < m_; ++from) {
      builder_.copy(r, plan::output(from * g_ + place), block(group, from, place));
    }
    for (int i = 1; i < g_; ++i) {
      const int to = wrap(place + i, g_);
      for (int from = 0; from < m_; ++from) {
        builder_.copy(r, plan::scratch(packed_ + to * m_ + from), block(group, from, to));
      }
      builder_.send(r, group * g_ + to, plan::scratch(packed_ + to * m_, m_));
    }
    for (int i = 1; i < g_; ++i) {
      const int from_place = wrap(place - i, g_);
      builder_.recv(r, group * g_ + from_place, plan::scratch(handed_ + from_place * m_, m_));
      for (int from = 0; from < m_; ++from) {
        builder_.copy(r, plan::output(from * g_ + from_place), plan::scratch(handed_ + from_place * m_ + from));
      }
    }
  }

 private:
  // After the first exchange: the block from the rank of the same position in group `from` for position `to` of this
  // group.
  Slice block(int group, int from, int to) const {
    return from == group ? plan::input(group * g_ + to) : plan::scratch(arrived_ + from * g_ + to);
  }

  PlanBuilder& builder_;
  int g_;
  int m_;
  int arrived_;
  int packed_;
  int handed_;
};

}  // namespace

void hierarchical_all_to_all(PlanBuilder& builder, const Shape& shape) {
  const int g = group_size(shape);
  const int m = shape.num_ranks / g;
  TwoLevel two_level(builder, g, m);
  for (int group = 0; group < m; ++group) {
    for (int place = 0; place < g; ++place) {
      two_level.exchange_between_groups(group, place);
      two_level.exchange_in_group(group, place);
    }
  }
}

}  // namespace lockstep::algorithms
