// Direct: every block goes straight from its source to its destination, all at once.
//
// all_gather, reduce_scatter: one step with p-1 peers. gather, scatter: the root exchanges with all ranks. send_recv:
// each rank sends to the next around the ring, as nccl-tests' sendrecv does.
//
// Source: the definitions (collective.h); Thakur, Rabenseifner, Gropp 2005, section 4 calls them linear. Steps: 1 (all
// peers at once). Bytes per rank: S (p-1)/p, S = p blocks; at the root for gather and scatter; S for
//   send_recv.
#include "collectives/algorithms/direct.h"

#include "collectives/algorithms/algorithm.h"

namespace lockstep::algorithms {

using collectives::Kind;
using plan::PlanBuilder;

plan::Plan direct_all_gather(const Shape& shape) {
  const int p = shape.num_ranks;
  PlanBuilder builder(Kind::all_gather, p, 0, 1);
  for (int r = 0; r < p; ++r) {
    for_each_peer(r, p, [&](int peer) { builder.send(r, peer, plan::input(0)); });
    for_each_peer(r, p, [&](int peer) { builder.recv(r, peer, plan::output(peer)); });
    builder.copy(r, plan::output(r), plan::input(0));  // last: in place it has to wait for the readers of sent blocks
  }
  return builder.finish("direct");
}

plan::Plan direct_reduce_scatter(const Shape& shape) {
  const int p = shape.num_ranks;
  PlanBuilder builder(Kind::reduce_scatter, p, 0, 1);
  for (int r = 0; r < p; ++r) {
    for_each_peer(r, p, [&](int peer) { builder.send(r, peer, plan::input(peer)); });
    plan::Slice sum = plan::input(r);
    for_each_peer(r, p, [&](int peer) {
      builder.recv_reduce(r, peer, plan::output(0), sum);
      sum = plan::output(0);
    });
  }
  return builder.finish("direct");
}

plan::Plan direct_gather(const Shape& shape) {
  const int root = shape.root;
  PlanBuilder builder(Kind::gather, shape.num_ranks, root, 1);
  builder.copy(root, plan::output(root), plan::input(0));
  for_each_peer(root, shape.num_ranks,
                [&](int peer) { builder.transfer(peer, root, plan::input(0), plan::output(peer)); });
  return builder.finish("direct");
}

plan::Plan direct_scatter(const Shape& shape) {
  const int root = shape.root;
  PlanBuilder builder(Kind::scatter, shape.num_ranks, root, 1);
  for_each_peer(root, shape.num_ranks,
                [&](int peer) { builder.transfer(root, peer, plan::input(peer), plan::output(0)); });
  builder.copy(root, plan::output(0), plan::input(root));
  return builder.finish("direct");
}

plan::Plan direct_send_recv(const Shape& shape) {
  const int p = shape.num_ranks;
  PlanBuilder builder(Kind::send_recv, p, 0, 1);
  for (int r = 0; r < p; ++r) builder.send(r, wrap(r + 1, p), plan::input(0));
  for (int r = 0; r < p; ++r) builder.recv(r, wrap(r - 1, p), plan::output(0));
  return builder.finish("direct");
}

}  // namespace lockstep::algorithms
