// What NCCL's tuner would choose: the algorithm and protocol whose time, by its own constants (nccl_tables.h) and the
// bandwidth that its search finds in a machine (Machine::nccl), is least. What that takes in truth is nccl_time.h's.
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
// The innermost level of a machine is a node.
NcclCall nccl_call(schedules::Comm comm, double bytes, MembersOfLevels members);

// All that NCCL has for a call on such a machine; never none.
std::vector<NcclWay> nccl_ways(const Nccl& nccl, const NcclCall& call);

// Start and steps, in microseconds; the tuner's, and nccl_time()'s.
double nccl_latency_us(const Nccl& nccl, const NcclCall& call, const NcclWay& way);
// Latencies of the steps inside a node.
const nccl::Hops& hops_in_node(const Nccl& nccl);
// Levels of a tree of nodes.
double hops_between_nodes(const NcclCall& call);
// The most GB/s of bus bandwidth of NVLSTree's heads.
double most_nvls_tree_gbps(const Nccl& nccl, const NcclCall& call);
// Bandwidth of trees at a size, as a share of what they reach at large ones.
double tree_share(double bytes, Protocol protocol);
// The most GB/s of LL among ranks of so many nodes.
double most_ll_gbps(const Nccl& nccl, const NcclCall& call);

// Microseconds by the tuner's constants.
double nccl_tuner_us(const Machine& machine, const NcclCall& call, MembersOfLevels members, const NcclWay& way);
NcclWay nccl_choice(const Machine& machine, const NcclCall& call, MembersOfLevels members);

}  // namespace lockstep::simulator
