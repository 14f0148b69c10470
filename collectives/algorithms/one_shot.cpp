// One-shot and two-shot all-reduce: no forwarding, every rank reads the data that it needs from its owner.
//
// One-shot: each rank reads every other rank's whole vector and sums by itself. One step, but (p-1) S bytes per rank:
// right for a few ranks and small sizes. Each rank sums in its own order, so for data whose sum is not exact the last
// bits may differ between ranks. Two-shot: rank c reads piece c of all ranks and sums it (reduce-scatter), then all
// ranks read the finished pieces (all-gather). Two steps, and no more bytes than a ring; all ranks get the same bits.
//
// Source: vLLM csrc/custom_all_reduce.cuh, cross_device_reduce_1stage and _2stage. Steps: 1 and 2 (all peers at once).
// Bytes per rank: (p-1) S and 2 S (p-1)/p.
#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/direct.h"

namespace lockstep::algorithms {

using plan::PlanBuilder;

plan::Plan one_shot_all_reduce(const Shape& shape) {
  const int p = shape.num_ranks;
  PlanBuilder builder(collectives::Kind::all_reduce, p, 0, 1);
  for (int r = 0; r < p; ++r) {
    for_each_peer(r, p, [&](int peer) { builder.send(r, peer, plan::input(0)); });
    plan::Slice sum = plan::input(0);
    for_each_peer(r, p, [&](int peer) {
      builder.recv_reduce(r, peer, plan::output(0), sum);
      sum = plan::output(0);
    });
  }
  return builder.finish("one_shot");
}

plan::Plan two_shot_all_reduce(const Shape& shape) {
  const int p = shape.num_ranks;
  PlanBuilder builder(collectives::Kind::all_reduce, p, 0, p);
  for (int r = 0; r < p; ++r) {
    for_each_peer(r, p, [&](int peer) { builder.send(r, peer, plan::input(peer)); });
    plan::Slice sum = plan::input(r);
    for_each_peer(r, p, [&](int peer) {
      builder.recv_reduce(r, peer, plan::output(r), sum);
      sum = plan::output(r);
    });
    for_each_peer(r, p, [&](int peer) { builder.send(r, peer, plan::output(r)); });
    for_each_peer(r, p, [&](int peer) { builder.recv(r, peer, plan::output(peer)); });
  }
  return builder.finish("two_shot");
}

}  // namespace lockstep::algorithms
