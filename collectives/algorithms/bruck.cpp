// Bruck: any number of ranks in ceil(lg p) steps. Slot i of a rank's scratch is for the rank i positions after it, so
// all ranks do the same with different numbers, and powers of two are no special case.
//
//   all-gather, step with m = 1, 2, 4, ...: send slots 0..m-1 to rank r-m, receive slots m..2m-1 from rank r+m
//
//   5 ranks, blocks at rank 0:   0  |  0 1  |  0 1 2 3  |  0 1 2 3 4     (the last step moves only p - m slots)
//
// all_gather: this, then the slots are copied to their places. reduce_scatter: the same backwards, adding where
// all-gather copies. all_reduce: all inputs are gathered this way (p S bytes of scratch: for small sizes), and each
// rank sums them in rank
//   order, so that all get the same bits.
//
// Source: Bruck, Ho, Kipnis, Upfal, Weathersby, Efficient algorithms for all-to-all communications in multiport
//   message-passing systems, IEEE TPDS 8 (1997), section 4; MPICH, allgather_intra_brucks.c.
// Steps: ceil(lg p). Bytes per rank: S (p-1)/p (all_gather, reduce_scatter: S = p blocks), S (p-1) (all_reduce).
#include <algorithm>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/building_blocks.h"

namespace lockstep::algorithms {

using plan::PlanBuilder;

namespace {

// Scratch slot `slots` + i of rank r gets the input of rank r + i.
void gather_inputs(PlanBuilder& builder, int num_ranks, int slots) {
  for (int r = 0; r < num_ranks; ++r) {
    builder.copy(r, plan::scratch(slots), plan::input(0));
    for (int m = 1; m < num_ranks; m *= 2) {
      const int count = std::min(m, num_ranks - m);
      builder.send(r, wrap(r - m, num_ranks), plan::scratch(slots, count));
      builder.recv(r, wrap(r + m, num_ranks), plan::scratch(slots + m, count));
    }
  }
}

}  // namespace

void bruck_all_gather(PlanBuilder& builder, const Shape& shape) {
  const int p = shape.num_ranks;
  const int slots = builder.take_scratch(p);
  gather_inputs(builder, p, slots);
  for (int r = 0; r < p; ++r) {
    builder.copy(r, plan::output(r, p - r), plan::scratch(slots, p - r));
    if (r > 0) builder.copy(r, plan::output(0, r), plan::scratch(slots + p - r, r));
  }
}

void bruck_all_reduce(PlanBuilder& builder, const Shape& shape) {
  const int p = shape.num_ranks;
  const int slots = builder.take_scratch(p);
  gather_inputs(builder, p, slots);
  for (int r = 0; r < p; ++r) {
    const auto input_of = [&](int rank) { return plan::scratch(slots + wrap(rank - r, p)); };
    builder.copy(r, plan::output(0), input_of(0));
    for (int rank = 1; rank < p; ++rank) builder.reduce(r, plan::output(0), input_of(rank));
  }
}

void bruck_reduce_scatter(PlanBuilder& builder, const Shape& shape) {
  const int p = shape.num_ranks;
  const int slots = builder.take_scratch(p);
  for (int r = 0; r < p; ++r) {
    builder.copy(r, plan::scratch(slots, p - r), plan::input(r, p - r));
    if (r > 0) builder.copy(r, plan::scratch(slots + p - r, r), plan::input(0, r));
    for (int m = ceil_power_of_two(p) / 2; m >= 1; m /= 2) {
      const int count = std::min(m, p - m);
      const plan::Slice sum = plan::scratch(slots, count);
      builder.send(r, wrap(r + m, p), plan::scratch(slots + m, count));
      builder.recv_reduce(r, wrap(r - m, p), m == 1 ? plan::output(0) : sum, sum);
    }
  }
}

}  // namespace lockstep::algorithms
