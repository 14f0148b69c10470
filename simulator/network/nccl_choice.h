// The choice of NCCL's tuner: the algorithm and protocol with the least time by its own constants (nccl_tables.h) and
// the bandwidth that its search finds in a machine (Machine::nccl). nccl_time.h predicts the real time.
//
// Not modelled: CollNet (in-network reduction over the network), which needs a plugin and switches that no description
// has, and several collectives in one group call.
#pragma once

#include <vector>

#include "schedules/step/step.h"
#include "simulator/machine/machine.h"
#include "simulator/network/collective_prediction.h"
#include "simulator/network/nccl_tables.h"
#include "simulator/network/rates.h"

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
  double ranks_a_node() const { return ranks / nodes; }
  double rounds() const { return comm == schedules::Comm::all_reduce ? 2 : 1; }  // around a ring
  double ring_steps() const { return rounds() * (ranks - 1); }
};
// Describes a call to NCCL; the innermost level of the machine is a node.
NcclCall nccl_call(schedules::Comm comm, double bytes, MembersOfLevels members);

// All (algorithm, protocol) pairs that NCCL has for a call on such a machine; never empty.
std::vector<NcclWay> nccl_ways(const Nccl& nccl, const NcclCall& call);

// Latency of start and steps, in microseconds; used by the tuner and by nccl_time().
double nccl_latency_us(const Nccl& nccl, const NcclCall& call, const NcclWay& way);
// Latencies of the steps inside a node.
const nccl::Hops& hops_in_node(const Nccl& nccl);
// Levels of a tree of nodes.
double hops_between_nodes(const NcclCall& call);
// Largest bus bandwidth of NVLSTree's heads, in GB/s.
double most_nvls_tree_gbps(const Nccl& nccl, const NcclCall& call);
// Bandwidth of trees at a message size, as a share of that at large sizes.
double tree_share(double bytes, Protocol protocol);
// Largest bandwidth of LL for the call's number of nodes, in GB/s.
double most_ll_gbps(const Nccl& nccl, const NcclCall& call);

// Time by the tuner's constants, in microseconds.
double nccl_tuner_us(const Machine& machine, const NcclCall& call, MembersOfLevels members, const NcclWay& way);
NcclWay nccl_choice(const Machine& machine, const NcclCall& call, MembersOfLevels members);

}  // namespace lockstep::simulator
