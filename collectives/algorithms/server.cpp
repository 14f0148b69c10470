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
#include <cstdint>
#include <vector>

#include "collectives/algorithms/algorithm.h"
#include "collectives/algorithms/direct.h"
#include "core/index.h"

namespace lockstep::algorithms {

using plan::PlanBuilder;
using plan::Slice;

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

plan::Plan through_servers(int num_ranks, int num_servers, bool last, const char* name) {
  const std::vector<int> part_of = parts_of_ranks(num_ranks, num_servers, last);
  PlanBuilder builder(collectives::Kind::all_reduce, num_ranks, 0, num_servers);
  for (int r = 0; r < num_ranks; ++r) {
    const int own = part_of[at(r)];
    const auto for_each_server = [&](const auto& visit) {
      for_each_peer(r, num_ranks, [&](int peer) {
        if (part_of[at(peer)] != kNone) visit(peer, part_of[at(peer)]);
      });
    };
    for_each_server([&](int server, int part) { builder.send(r, server, plan::input(part)); });
    if (own != kNone) {
      Slice sum = plan::input(own);
      for_each_peer(r, num_ranks, [&](int peer) {
        builder.recv_reduce(r, peer, plan::output(own), sum);
        sum = plan::output(own);
      });
      for_each_peer(r, num_ranks, [&](int peer) { builder.send(r, peer, plan::output(own)); });
    }
    for_each_server([&](int server, int part) { builder.recv(r, server, plan::output(part)); });
  }
  return builder.finish(name);
}

}  // namespace

plan::Plan server_all_reduce(const Shape& shape) {
  return through_servers(shape.num_ranks, shape.option("servers"), shape.option("last") == 1, "server");
}

plan::Plan root_all_reduce(const Shape& shape) {
  return through_servers(shape.num_ranks, 1, false, "root");
}

}  // namespace lockstep::algorithms
