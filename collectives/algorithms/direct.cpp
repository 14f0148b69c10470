// Direct: every block goes straight from its source to its destination, all at once.
//
// all_gather, reduce_scatter: one step with p-1 peers. gather, scatter: the root exchanges with all ranks. send_recv:
// each rank sends to the next around the ring, as nccl-tests' sendrecv does.
//
// Source: the definitions (collective.h); Thakur, Rabenseifner, Gropp 2005, section 4 calls them linear. Steps: 1 (all
// peers at once). Bytes per rank: S (p-1)/p, S = p blocks; at the root for gather and scatter; S for
//   send_recv.
#include "collectives/algorithms/building_blocks.h"

#include <cstdint>
#include <vector>

#include "collectives/algorithms/algorithm.h"
#include "core/index.h"

namespace lockstep::algorithms {

using plan::PlanBuilder;
using plan::Slice;

namespace {

// Sums what all other ranks send and the rank's own slice, into `into`.
void add_from_peers(PlanBuilder& builder, int rank, int num_ranks, Slice into, Slice own) {
  Slice sum = own;
  for_each_peer(rank, num_ranks, [&](int peer) {
    builder.recv_reduce(rank, peer, into, sum);
    sum = into;
  });
}

}  // namespace

void direct_all_gather(PlanBuilder& builder, const Shape& shape) {
  const int p = shape.num_ranks;
  for (int r = 0; r < p; ++r) {
    for_each_peer(r, p, [&](int peer) { builder.send(r, peer, plan::input(0)); });
    for_each_peer(r, p, [&](int peer) { builder.recv(r, peer, plan::output(peer)); });
    builder.copy(r, plan::output(r), plan::input(0));  // last: in place it has to wait for the readers of sent blocks
  }
}

void direct_reduce_scatter(PlanBuilder& builder, const Shape& shape) {
  const int p = shape.num_ranks;
  for (int r = 0; r < p; ++r) {
    for_each_peer(r, p, [&](int peer) { builder.send(r, peer, plan::input(peer)); });
    add_from_peers(builder, r, p, plan::output(0), plan::input(r));
  }
}

void direct_gather(PlanBuilder& builder, const Shape& shape) {
  const int root = shape.root;
  builder.copy(root, plan::output(root), plan::input(0));
  for_each_peer(root, shape.num_ranks,
                [&](int peer) { builder.transfer(peer, root, plan::input(0), plan::output(peer)); });
}

void direct_scatter(PlanBuilder& builder, const Shape& shape) {
  const int root = shape.root;
  for_each_peer(root, shape.num_ranks,
                [&](int peer) { builder.transfer(root, peer, plan::input(peer), plan::output(0)); });
  builder.copy(root, plan::output(0), plan::input(root));
}

void direct_send_recv(PlanBuilder& builder, const Shape& shape) {
  const int p = shape.num_ranks;
  for (int r = 0; r < p; ++r) builder.send(r, wrap(r + 1, p), plan::input(0));
  for (int r = 0; r < p; ++r) builder.recv(r, wrap(r - 1, p), plan::output(0));
}

// One-shot and two-shot all-reduce: no forwarding, every rank reads the data that it needs from its owner.
//
// One-shot: each rank reads every other rank's whole vector and sums by itself. One step, but (p-1) S bytes per rank:
// right for a few ranks and small sizes. Each rank sums in its own order, so for data whose sum is not exact the last
// bits may differ between ranks. Two-shot: rank c reads piece c of all ranks and sums it (reduce-scatter), then all
// ranks read the finished pieces (all-gather). Two steps, and no more bytes than a ring; all ranks get the same bits.
//
// Source: vLLM csrc/custom_all_reduce.cuh, cross_device_reduce_1stage and _2stage. Steps: 1 and 2 (all peers at once).
// Bytes per rank: (p-1) S and 2 S (p-1)/p.

void one_shot_all_reduce(PlanBuilder& builder, const Shape& shape) {
  const int p = shape.num_ranks;
  for (int r = 0; r < p; ++r) {
    for_each_peer(r, p, [&](int peer) { builder.send(r, peer, plan::input(0)); });
    add_from_peers(builder, r, p, plan::output(0), plan::input(0));
  }
}

void two_shot_all_reduce(PlanBuilder& builder, const Shape& shape) {
  const int p = shape.num_ranks;
  builder.cut_blocks(p);
  for (int r = 0; r < p; ++r) {
    for_each_peer(r, p, [&](int peer) { builder.send(r, peer, plan::input(peer)); });
    add_from_peers(builder, r, p, plan::output(r), plan::input(r));
    for_each_peer(r, p, [&](int peer) { builder.send(r, peer, plan::output(r)); });
    for_each_peer(r, p, [&](int peer) { builder.recv(r, peer, plan::output(peer)); });
  }
}

// Parameter servers as an all-reduce: S of the ranks each sum a part of the vector. Each rank pushes part s to server
// s, which adds incoming parts to its own, and pulls the sum from there.
//
//   4 ranks, 2 servers (ranks 0 and 2; parts 0 and 1):
//
//     push   1, 2, 3 -> 0 (part 0)     0, 1, 3 -> 2 (part 1)
//     pull   0 -> 1, 2, 3              2 -> 0, 1, 3
//
// Servers are spread evenly over the ranks, so that hosts share the load: colocated with workers. With last=1 they are
// the last ranks, as on hosts of their own: dedicated servers. An all-reduce sums every rank's vector, so these ranks
// contribute zeros. With S = p it is two_shot. With S = 1 on rank 0 it is `root`, the sum of PyTorch's DataParallel:
// everything goes through the port of one rank.
//
// Source: Li et al. 2014, Scaling distributed machine learning with the parameter server, OSDI; Jiang et al. 2020, A
//   unified architecture for accelerating distributed DNN training in heterogeneous GPU/CPU clusters (BytePS), OSDI,
//   section 3 (colocated and not); torch.nn.DataParallel.
// Steps: 2 (all peers at once). Bytes of a vector of N: N (p + S - 2)/S at a server, N elsewhere.

namespace {

constexpr int kNone = -1;

// [rank] the part that it sums, or kNone.
std::vector<int> parts_of_ranks(int num_ranks, int num_servers, bool last) {
  std::vector<int> parts(at(num_ranks), kNone);
  for (int s = 0; s < num_servers; ++s) {
    const int spread = static_cast<int>(std::int64_t{s} * num_ranks / num_servers);
    parts[at(last ? num_ranks - num_servers + s : spread)] = s;
  }
  return parts;
}

void through_servers(PlanBuilder& builder, int num_ranks, int num_servers, bool last) {
  const std::vector<int> part_of = parts_of_ranks(num_ranks, num_servers, last);
  builder.cut_blocks(num_servers);
  for (int r = 0; r < num_ranks; ++r) {
    const int own = part_of[at(r)];
    const auto for_each_server = [&](const auto& visit) {
      for_each_peer(r, num_ranks, [&](int peer) {
        if (part_of[at(peer)] != kNone) visit(peer, part_of[at(peer)]);
      });
    };
    for_each_server([&](int server, int part) { builder.send(r, server, plan::input(part)); });
    if (own != kNone) {
      add_from_peers(builder, r, num_ranks, plan::output(own), plan::input(own));
      for_each_peer(r, num_ranks, [&](int peer) { builder.send(r, peer, plan::output(own)); });
    }
    for_each_server([&](int server, int part) { builder.recv(r, server, plan::output(part)); });
  }
}

}  // namespace

void server_all_reduce(PlanBuilder& builder, const Shape& shape) {
  through_servers(builder, shape.num_ranks, shape.option("servers"), shape.option("last") == 1);
}

void root_all_reduce(PlanBuilder& builder, const Shape& shape) {
  through_servers(builder, shape.num_ranks, 1, false);
}

}  // namespace lockstep::algorithms
