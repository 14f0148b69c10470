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
#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/direct.h"
#include "collectives/algorithms/numbers.h"

namespace lockstep::algorithms {

using plan::PlanBuilder;
using plan::Slice;

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

plan::Plan hierarchical_all_to_all(const Shape& shape) {
  const int g = group_size(shape);
  const int m = shape.num_ranks / g;
  PlanBuilder builder(collectives::Kind::all_to_all, shape.num_ranks, 0, 1);
  TwoLevel two_level(builder, g, m);
  for (int group = 0; group < m; ++group) {
    for (int place = 0; place < g; ++place) {
      two_level.exchange_between_groups(group, place);
      two_level.exchange_in_group(group, place);
    }
  }
  return builder.finish("hierarchical");
}

}  // namespace lockstep::algorithms
