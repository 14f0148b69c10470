// How data-parallel ranks (replicas) agree on weights in place of an all-reduce of every step's gradients.
//
//   server:servers=S    Each step's gradients are pushed to S servers, each of which sums a part, and pulled from
//   there;
//                       every replica updates its own weights (collectives/algorithms/server.cpp; BytePS's summation
//                       service, Jiang et al. 2020, OSDI, section 4). Servers are colocated with replicas.
//   root                Gradients are summed on replica 0, which updates and sends the weights to all others:
//                       torch.nn.DataParallel.
//   average:every=H     Each replica trains by itself; every H steps weights are averaged (local SGD: Stich 2019,
//                       arXiv:1805.09767). Moments of AdamW stay where they are.
//   diloco:every=H      Likewise, and an outer SGD with Nesterov momentum takes the mean change of H steps as its
//                       gradient (Douillard et al. 2023, arXiv:2311.08105, algorithm 1).
//   async:staleness=K   A server of its own rank applies gradients as they come; no replica is more than K steps ahead
//                       of the slowest (stale synchronous parallel: Ho et al. 2013, NIPS). Arrivals are in an order
//                       that is drawn from the seed (arrival_order.h), so that a run repeats bit for bit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::trainer {

enum class SyncWay : std::uint8_t { every_step, server, root, average, diloco, async };

struct SyncOptions {
  SyncWay way = SyncWay::every_step;  // gradients are all-reduced within the step, or reduce-scattered (ZeRO)
  std::int32_t servers = 1;           // mode server
  std::int64_t every = 1;             // average, diloco: in steps
  double outer_rate = 0.7;            // diloco: its paper's section 3.1
  double outer_momentum = 0.9;        // diloco: likewise
  std::int64_t staleness = 0;         // async: in steps; 0: replicas advance step by step
  double jitter = 0.1;  // async: largest random extension of a step, as a share of its time, in the order's clock

  // True if replicas step independently and agree after the step.
  bool replicas_step_alone() const { return way != SyncWay::every_step; }
  // True if a replica's own step ends with gradients, without an update.
  bool sums_gradients() const { return way == SyncWay::server || way == SyncWay::root || way == SyncWay::async; }
  bool averages() const { return way == SyncWay::average || way == SyncWay::diloco; }
  // True if replicas have the same weights after a step; after the last of `steps` they always have.
  bool agrees_after(std::int64_t step, std::int64_t steps) const {
    return !averages() || step % every == 0 || step == steps;
  }
  bool has_server_rank() const { return way == SyncWay::async; }  // a rank of its own
};

// Reads "diloco:every=20:rate=0.7:momentum=0.9", or "allreduce" for every_step. Throws a usage Error with what is
// allowed.
SyncOptions parse_sync(std::string_view text);
std::string text_of(const SyncOptions& sync);

// A slow replica: its thread sleeps after the kernels of each step, so that the step takes `factor` times as long. With
// `step_ms`, every replica's step is first stretched to that time, which emulates a slower machine: the slowdown is
// then exact even if ranks share cores.
struct Straggler {
  std::int32_t replica = -1;  // -1: a different replica in each step, drawn from the seed
  double factor = 1;          // 1: no replica is slow
  double step_ms = 0;         // 0: no stretching

  bool given() const { return factor > 1 || step_ms > 0; }
  double factor_of(std::int32_t of_replica, std::int32_t replicas, std::uint64_t seed, std::int64_t step) const;
};

// Reads "replica=1,factor=3", "replica=any,factor=3,step_ms=40". Throws a usage Error.
Straggler parse_straggler(std::string_view text);
std::string text_of(const Straggler& straggler);

}  // namespace lockstep::trainer
