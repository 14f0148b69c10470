// All-to-all, block by block: every block goes straight to its destination.
//
// pairwise: p-1 steps; in step i each rank sends to rank+i and receives from rank-i, so no rank receives from two at
// once. direct: the same sends, all started first; then the receives. One step if the machine can do them at once. A
// plan does not contain block sizes, so all_to_all_v is the same plan.
//
// Source: Thakur, Rabenseifner, Gropp 2005, section 4.6; MPICH, alltoall_intra_pairwise.c, alltoall_intra_scattered.c.
// Steps: p-1; 1. Bytes per rank, S = p blocks: S (p-1)/p.
#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/direct.h"

namespace lockstep::algorithms {

using collectives::Kind;
using plan::PlanBuilder;

namespace {

plan::Plan pairwise(Kind kind, int p) {
  PlanBuilder builder(kind, p, 0, 1);
  for (int r = 0; r < p; ++r) {
    builder.copy(r, plan::output(r), plan::input(r));
    for (int i = 1; i < p; ++i) {
      builder.send(r, wrap(r + i, p), plan::input(wrap(r + i, p)));
      builder.recv(r, wrap(r - i, p), plan::output(wrap(r - i, p)));
    }
  }
  return builder.finish("pairwise");
}

plan::Plan direct(Kind kind, int p) {
  PlanBuilder builder(kind, p, 0, 1);
  for (int r = 0; r < p; ++r) {
    for_each_peer(r, p, [&](int peer) { builder.send(r, peer, plan::input(peer)); });
    builder.copy(r, plan::output(r), plan::input(r));
    for_each_peer(r, p, [&](int peer) { builder.recv(r, peer, plan::output(peer)); });
  }
  return builder.finish("direct");
}

}  // namespace

plan::Plan pairwise_all_to_all(const Shape& shape) {
  return pairwise(Kind::all_to_all, shape.num_ranks);
}
plan::Plan pairwise_all_to_all_v(const Shape& shape) {
  return pairwise(Kind::all_to_all_v, shape.num_ranks);
}
plan::Plan direct_all_to_all(const Shape& shape) {
  return direct(Kind::all_to_all, shape.num_ranks);
}
plan::Plan direct_all_to_all_v(const Shape& shape) {
  return direct(Kind::all_to_all_v, shape.num_ranks);
}

}  // namespace lockstep::algorithms
