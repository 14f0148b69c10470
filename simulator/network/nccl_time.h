// The time of one of NCCL's collectives on a machine: the latency of its algorithm's steps, plus the bytes on the
// busiest port at the rate that ports reach with its protocol. docs/metrics.md has the formulas.
//
//   latency   start_us of the machine + NCCL's own latencies of the start and of each step (nccl_latency_us), but the
//             machine's of a step with Simple inside a node
//   ring      rounds (n-1)/n S bytes of each rank's port. In a node, each rank besides copies its last part, S/n, out
//   of
//             the buffer while nothing else moves: last_copy times as long as that part takes on the wire
//   tree      up and down a chain in the node 2 S; 2 S (N-1)/N of a node's ports between N nodes; the longer of both
//   nvls      S (1 + 1/g) of a rank's port among g of a node: the switch reads and writes S, and the sums, S/g; and the
//             same for one chunk of all channels, whose writes come after its reads
//   nvls_tree as nvls in the node, as a tree between nodes, or 2 (n-1)/n S at NCCL's limit of a head: the longest of
//   them,
//             and one chunk through the other stages of the pipeline
//   pat       as a ring, at 0.75 of its rate
#pragma once

#include "simulator/network/nccl_choice.h"

namespace lockstep::simulator {

CollectivePrediction nccl_time(const Machine& machine, const NcclCall& call, MembersOfLevels members,
                               const NcclWay& way);
// An all-to-all as grouped sends and receives: one message to each other rank.
CollectivePrediction nccl_all_to_all(const Machine& machine, double bytes, MembersOfLevels members);

}  // namespace lockstep::simulator
