// The time of a collective on a machine: by formula, from its algorithm, protocol and rates, or by playing its plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"
#include "schedules/step/step.h"
#include "simulator/engine/engine.h"
#include "simulator/machine/machine.h"

namespace lockstep::simulator {

// The algorithm and protocol of a collective, and its predicted time.

enum class CollectiveAlgorithm : std::uint8_t { ring, tree, exchange, nvls, nvls_tree, pat, copy_engine, measured };
std::string_view name_of(CollectiveAlgorithm algorithm);

// NCCL's protocols: LL sends 4 bytes of data with each 4 bytes of flags, LL128 120 bytes with 8 of flags, Simple whole
// buffer slots with a fence after each. `none` if NCCL does not run the collective.
enum class Protocol : std::uint8_t { ll, ll128, simple, none };
std::string_view name_of(Protocol protocol);

struct CollectivePrediction {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  Protocol protocol = Protocol::none;
  double latency_us = 0;
  double transfer_us = 0;
  double taken = 0;  // share of the device's multiprocessors that it takes from concurrent kernels
  double time_us() const { return latency_us + transfer_us; }
};
// "ring", "ring ll128"
std::string way_of(const CollectivePrediction& prediction);

// The placement of a collective's members on the levels of a machine, and the bandwidth of their ports.

// For each level of a machine, the number of members that one switch joins (workload/layout.h); the last is all of
// them.
using MembersOfLevels = std::span<const std::int64_t>;

// One level of the machine as a group crosses it.
struct Crossing {
  double parts = 1;             // switches of the level below that the members of one switch come from
  double members_per_part = 1;  // members in each of those
};
Crossing crossing_of(MembersOfLevels members, std::size_t level);

// The members of a group on a torus, in the order of their numbers: whole rows, or part of one row.
struct TorusPart {
  double columns = 1;
  double rows = 1;
};
TorusPart torus_part(const Torus& torus, std::int64_t members);
// Load of the busiest link in an all-to-all, in units of the bytes that each member exchanges with all others:
// everything that goes one way along a row, or a column, passes one of its links.
double torus_load(const Torus& torus, std::int64_t members);

// Bytes per microsecond that one member's port carries for a collective among these members. If devices are joined by
// links instead of a switch, small groups have few links between their members (Nccl::of_members).
double port_rate(const Machine& machine, MembersOfLevels members, std::size_t level);

// Bytes per microsecond that each member of a ring over all members sends: the slowest part of the ring, from a given
// level on. Infinite if the ring does not cross that level.
double ring_rate(const Machine& machine, MembersOfLevels members, std::size_t first_level = 0);

// The time of a collective on a machine, by formula. docs/metrics.md has the formulas with their sources.
//
// On a machine that has NCCL (Machine::nccl) NCCL's tuner chooses, and nccl.h gives the choice and the time. On
// others the fastest of this library's plans runs: on one level with latency alpha per message, B bytes/s per rank, S
// bytes of payload (schedules/step/step.h) and n ranks
//   ring        reduce-scatter, all-gather  (n-1) (alpha + S/(n B));  all-reduce twice that
//   tree        all-reduce                  2 ceil(log2 n) alpha + 2 S/B, segments so small that levels overlap
//   exchange    all-to-all, n-1 messages    (n-1) (alpha + S/(n B))
//   exchange    shift, a message            alpha + S/B, of the slowest link that neighbours cross
//   chain       broadcast, reduce: in pieces so small that all links are at work, as an all-gather of n/(n-1) S, which
//               sends as much over every link in as many steps
// Across levels a ring passes from switch to switch once for each of its channels, so that all members within a switch
// carry its bytes over their own ports (NCCL's rings): its bandwidth is the least of a port's inside and of the sum of
// ports outside; each of its n-1 steps has the latency of what it crosses. On a torus of X x Y rings go along rows and
// then along columns (Mikami et al. 2018, arXiv:1811.05233, section 2.2): X-1 + Y-1 steps, over one link at a time; of
// an all-to-all the busiest link decides.

// The fastest way on this machine. If the collective was measured with this number of ranks (Machine::measured), the
// measured time instead: interpolated linearly between sizes, with the largest size's bandwidth beyond it. `zero_cta`:
// NCCL runs it on copy engines if it can (copy_engines_can()), even where thread blocks are faster.
CollectivePrediction best_collective(const Machine& machine, schedules::Comm comm, double bytes,
                                     MembersOfLevels members, bool zero_cta = false);

// Measured microseconds for `bytes`, interpolated.
double measured_us(const Measured::Collective& measured, double bytes);

// Rotational symmetry of plans: if rotating all ranks by a period changes neither the plan nor the network, the first
// `period` ranks represent all. For example, a ring over 4,096 devices in nodes of 8 is played exactly with 8 ranks.

// The smallest period that divides the number of ranks, consists of whole switches of every level that does not join
// all ranks (on a fully used torus that does, whole rows), and by which each rank's steps equal the steps of the rank
// one period further: the same operations on equally many chunks, with peers at the same distance, after the same
// steps. Returns the number of ranks if there is no such period, or if messages of several ranks share a link of a
// torus, as their order would depend on the ranks' numbers. Assumes chunks of equal size.
int rotation_period(const plan::Plan& plan, const Machine& machine);

// The time of a plan on a machine's network, message by message in virtual time: any algorithm of the catalogue or a
// user's own plan, on any number of devices that the description has.
//
//   send         takes the ports and uplinks of its path for bytes over their bandwidth, in turn or at once
//                as the machine says, holds its lane until the bytes have left, and arrives one latency later
//   recv         ends when its message has arrived
//   recv_reduce  likewise; executors sum in segments while the rest arrives, so the last segment's sum is what it adds
//   copy, reduce pass over the device's memory
// and the call begins with one kernel launch. The formulas above predict NCCL with its protocols and channels; this
// predicts Lockstep's executors, which run the plan.

class PlanTime {
 public:
  // Rank r is the machine's device r. Throws a usage Error if the machine has fewer devices. Keeps no reference.
  PlanTime(const plan::Plan& plan, const Machine& machine);
  // Plays `period` ranks, which represent all; the constructor above finds the smallest period.
  PlanTime(const plan::Plan& plan, const Machine& machine, int period);

  // The time at which the last rank is done, in picoseconds. All chunks count with the largest chunk's size.
  std::int64_t play_ps(const collectives::Operation& operation) const;

  int ranks_played() const { return period_; }

 private:
  class Playing;
  struct Step {
    plan::Op op;
    std::int32_t chunks;
    std::int32_t channel = -1;  // messages only
    std::int32_t path = -1;     // index in paths_; sends only
    std::int32_t distance = 0;  // to its peer, upwards around all ranks
    std::vector<plan::After> after;
  };
  struct Lane {
    std::int32_t rank;
    std::vector<Step> steps;
  };
  void compile(const plan::Plan& plan, const Machine& machine);

  int period_;
  int lanes_a_rank_ = 0;
  std::int32_t num_channels_ = 0;
  std::int64_t start_ps_;
  double memory_ps_per_byte_;
  std::int32_t chunks_per_block_;
  std::vector<Lane> lanes_;  // [rank * lanes_a_rank_ + lane]
  std::vector<Path> paths_;
  std::vector<Link> links_;
};

}  // namespace lockstep::simulator
