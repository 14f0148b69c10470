// Options of replicas that step by themselves, and the order and time that follow from them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::trainer {

// The order in which an asynchronous server serves its replicas, drawn before the run from a seed and from stated step
// times of the replicas, so that a run repeats bit for bit regardless of threads and links.

// A replica pulls weights, or its gradient arrives and is applied.
struct Exchange {
  enum class Way : std::uint8_t { pull, push };
  Way way = Way::pull;
  std::int32_t replica = 0;
  std::int64_t step = 0;    // the replica's own step, from 1, for which the weights are or which made the gradient
  std::int64_t missed = 0;  // push: updates by others since the replica's pull
  double time = 0;          // in units of the stated step times
};

struct ArrivalRules {
  std::int32_t replicas = 1;
  std::int64_t pushes = 1;     // by all replicas
  std::int64_t staleness = 0;  // number of steps by which a replica may be ahead of the slowest when it begins a step
  std::function<double(std::int32_t replica, std::int64_t step)> step_time;  // positive
};

// Stale synchronous parallel (Ho et al. 2013, NIPS, section 3): a replica that has done c steps begins the next when c
// - (steps of the slowest) <= staleness; with 0 all wait for all. Messages take no time in this clock. If two end at
// once, the lower number goes first. The first steps begin with the initial weights, without a pull; steps that would
// not end within the pushes are not begun.
std::vector<Exchange> arrival_order(const ArrivalRules& rules);

// How data-parallel ranks (replicas) agree on weights instead of an all-reduce of every step's gradients.
//
//   server:servers=S    Each step's gradients are pushed to S servers, each of which sums a part, and pulled from
//   there;
//                       every replica updates its own weights (collectives/algorithms/direct.cpp; BytePS's summation
//                       service, Jiang et al. 2020, OSDI, section 4). Servers are colocated with replicas.
//   root                Gradients are summed on replica 0, which updates and sends the weights to all others:
//                       torch.nn.DataParallel.
//   average:every=H     Each replica trains by itself; every H steps weights are averaged (local SGD: Stich 2019,
//                       arXiv:1805.09767). The optimizer's states stay where they are.
//   diloco:every=H      Likewise, and an outer SGD with Nesterov momentum takes the mean change of H steps as its
//                       gradient (Douillard et al. 2023, arXiv:2311.08105, algorithm 1).
//   async:staleness=K   A server of its own rank applies gradients as they come; no replica is more than K steps ahead
//                       of the slowest (stale synchronous parallel: Ho et al. 2013, NIPS). Arrivals are in an order
//                       that is drawn from the seed, so that a run repeats bit for bit.

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

// Predicts the step time of a run from the times that its straggler states.

struct ReplicaRun {
  SyncOptions sync;
  Straggler straggler;
  std::int32_t replicas = 1;
  std::int64_t steps = 1;
  std::uint64_t seed = 1;
};

// Order of --sync async: for each step as many pushes as there are replicas, so that the run trains on as many tokens
// as in any other mode. A step takes time 1, times the straggler's factor, plus a random part up to the jitter.
std::vector<Exchange> order_of(const ReplicaRun& run);

// Mean step time in ms if each replica's own steps take straggler.step_ms times its factor, and messages and updates
// take no time. Replicas that sum gradients wait for the slowest in every step, those that average wait at the end of
// every round, and asynchronous ones where the order and the staleness bound require it.
double predicted_step_ms(const ReplicaRun& run);

}  // namespace lockstep::trainer
