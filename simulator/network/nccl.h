// NCCL's collectives on a machine (Machine::nccl): the tuner's choice of an algorithm and protocol, which takes the
// least time by NCCL's own constants and the bandwidth that its search finds; the prediction of the real time; and the
// fit of the machine's parameters to times.
//
// Not modelled: CollNet (in-network reduction over the network), which needs a plugin and switches that no description
// has, and several collectives in one group call.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/step/step.h"
#include "simulator/machine/machine.h"
#include "simulator/network/collective_time.h"

namespace lockstep::simulator {

struct NcclWay {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  Protocol protocol = Protocol::simple;
};

struct NcclCall {
  schedules::Comm comm = schedules::Comm::all_reduce;
  double bytes = 0;
  double ranks = 1;
  double nodes = 1;
  double ranks_per_node() const { return ranks / nodes; }
  double rounds() const { return comm == schedules::Comm::all_reduce ? 2 : 1; }  // around a ring
  double ring_steps() const { return rounds() * (ranks - 1); }
};
// Describes a call to NCCL; the innermost level of the machine is a node.
NcclCall nccl_call(schedules::Comm comm, double bytes, MembersOfLevels members);

// All (algorithm, protocol) pairs that NCCL has for a call on such a machine; never empty.
std::vector<NcclWay> nccl_ways(const Nccl& nccl, const NcclCall& call);

// Time by the tuner's constants, in microseconds.
double nccl_tuner_us(const Machine& machine, const NcclCall& call, MembersOfLevels members, const NcclWay& way);
NcclWay nccl_choice(const Machine& machine, const NcclCall& call, MembersOfLevels members);

// The time of one of NCCL's collectives on a machine: the latency of its algorithm's steps, plus the bytes on the
// busiest port at the rate that ports reach with its protocol. docs/metrics.md has the formulas.
//
//   latency   start_us of the machine + NCCL's own latencies of the start and of each step (nccl_latency_us), but the
//             machine's of a step with Simple inside a node
//   ring      rounds (n-1)/n S bytes of each rank's port. In a node, each rank besides copies its last part, S/n, from
//             the buffer while nothing else moves: last_copy times as long as that part takes on the wire
//   tree      up and down a chain in the node 2 S; 2 S (N-1)/N of a node's ports between N nodes; the longer of both
//   nvls      S (1 + 1/g) of a rank's port among g of a node: the switch reads and writes S, and the sums, S/g; and the
//             same for one chunk of all channels, whose writes come after its reads
//   nvls_tree the longest of nvls in the node, a tree between nodes, and 2 (n-1)/n S at NCCL's limit of a head; and one
//             chunk through the other stages of the pipeline
//   pat       as a ring, at 0.75 of its rate

CollectivePrediction nccl_time(const Machine& machine, const NcclCall& call, MembersOfLevels members,
                               const NcclWay& way);
// An all-to-all as grouped sends and receives: one message to each other rank.
CollectivePrediction nccl_all_to_all(const Machine& machine, double bytes, MembersOfLevels members);

// True if NCCL can run a collective without thread blocks, with its zero-CTA policy and its buffers in symmetric
// windows: it sums nothing, and all members are in one NVLink domain (ncclCeAvailable in its src/ce_coll.cc, 2.28 to
// 2.30.5; what 2.30.6 adds between domains is not modelled).
bool copy_engines_can(const Machine& machine, schedules::Comm comm, MembersOfLevels members);
// The time of such a collective: start_us, a flag to all members before and one after, and a copy of S/n to each other
// member at kCopyEngine of a port's gbps.
CollectivePrediction nccl_by_copy_engines(const Machine& machine, double bytes, MembersOfLevels members);

// A measured or published time of a collective, to which a machine's NCCL parameters are fitted.
struct CollectivePoint {
  schedules::Comm comm = schedules::Comm::all_reduce;
  std::int64_t ranks = 2;
  double bytes = 0;
  double us = 0;
  std::int64_t nodes = 1;  // with equally many ranks each, all below one switch of the network
};
CollectivePrediction predicted(const Machine& machine, const CollectivePoint& point);
double predicted_us(const Machine& machine, const CollectivePoint& point);

enum class NcclNumber : std::uint8_t { start_us, simple_step_us, collective_efficiency, ll128, last_copy, nvls };
inline constexpr std::array<std::string_view, 6> kNcclNumbers{"start_us", "simple_step_us", "collective_efficiency",
                                                              "ll128",    "last_copy",      "nvls"};

// The machine with these numbers fitted by least squares of relative errors. The fit starts from the machine's own
// numbers, which are above 0; shares stay at most 1. The tuner's choices do not depend on these numbers.
Machine fit_nccl(Machine machine, std::span<const CollectivePoint> points, std::span<const NcclNumber> numbers);
double value_of(const Machine& machine, NcclNumber number);

// Calibrates a machine from sweeps of NCCL's own collectives within one node: `base` with the numbers fitted that
// affect the rows, and with a source that names them. Throws a usage Error, in which `where` names the rows, if `base`
// has no NCCL or the rows have fewer than four sizes within one node.
Machine calibrate_nccl(const Machine& base, std::span<const RowLine> rows, const std::string& where);

}  // namespace lockstep::simulator
