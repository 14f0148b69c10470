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
  std::int32_t servers = 1;           // server
  std::int64_t every = 1;             // average, diloco: steps
  double outer_rate = 0.7;            // diloco: its paper's section 3.1
  double outer_momentum = 0.9;        // likewise
  std::int64_t staleness = 0;         // async: steps; 0: replicas go step by step
  double jitter = 0.1;                // async: a step takes up to so much longer, of its time, in the order's clock

  // Whether replicas step by themselves, and what they agree on comes after the step.
  bool replicas_step_alone() const { return way != SyncWay::every_step; }
  // Whether a replica's own step ends with gradients, and does not update.
  bool sums_gradients() const { return way == SyncWay::server || way == SyncWay::root || way == SyncWay::async; }
  bool averages() const { return way == SyncWay::average || way == SyncWay::diloco; }
  // Whether replicas have the same weights after a step; after the last of `steps` they always have.
  bool agrees_after(std::int64_t step, std::int64_t steps) const {
    return !averages() || step % every == 0 || step == steps;
  }
  bool has_server_rank() const { return way == SyncWay::async; }  // of its own
};

// "diloco:every=20:rate=0.7:momentum=0.9", "allreduce" for every_step. Throws a usage Error that says what is allowed.
SyncOptions parse_sync(std::string_view text);
std::string text_of(const SyncOptions& sync);

// A replica that is slow: its thread sleeps behind the kernels of each step, so that the step takes `factor` times as
// long. With `step_ms` every replica's kernels are stretched to that time first, which takes the place of a faster
// machine's: then slow ranks are as slow as is said also where ranks share cores.
struct Straggler {
  std::int32_t replica = -1;  // -1: another one in each step, drawn from the seed
  double factor = 1;          // 1: none is slow
  double step_ms = 0;         // 0: as long as kernels take

  bool given() const { return factor > 1 || step_ms > 0; }
  double factor_of(std::int32_t of_replica, std::int32_t replicas, std::uint64_t seed, std::int64_t step) const;
};

// "replica=1,factor=3", "replica=any,factor=3,step_ms=40". Throws a usage Error.
Straggler parse_straggler(std::string_view text);
std::string text_of(const Straggler& straggler);

}  // namespace lockstep::trainer
