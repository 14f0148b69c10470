// NCCL's tuner and the time of its collectives: constants, choice, prediction, and the fit of the constants.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/step/step.h"
#include "simulator/machine/machine.h"
#include "simulator/network/collective_time.h"

namespace lockstep::simulator::nccl {

// The constants by which NCCL 2.30.7 prices its algorithms and protocols, as data: ncclTunerConstantsDefaults,
// nvlsEfficiency and treeCorrectionFactor of its src/graph/tuning.cc, and the names of its docs. Microseconds and GB/s.

using OfProtocol = std::array<double, 3>;  // LL, LL128, Simple; 0: there is none

// Time of a collective before its first step, and of each step on a kind of link.
inline constexpr OfProtocol kRingStartUs{6.6, 14.0, 8.4};
inline constexpr OfProtocol kTreeStartUs{6.8, 14.0, 8.4};
inline constexpr double kPatStartUs = 8.0;

struct Hops {
  OfProtocol ring;
  OfProtocol tree;
  double nvls;
  double nvls_tree;
  double pat;
};
inline constexpr Hops kNvlinkUs{{0.6, 1.9, 3.4}, {0.6, 1.25, 4.0}, 25, 25, 4};
inline constexpr Hops kPcieUs{{1.0, 2.5, 5.7}, {1.0, 1.9, 4.0}, 0, 0, 4};
inline constexpr Hops kNetworkUs{{2.7, 4.0, 14.0}, {5.0, 8.5, 14.0}, 18, 20.9, 14};

// Host time in a step of a ring that leaves the node, for hosts with Intel CPUs; 3 times that with Simple.
inline constexpr double kNetworkPostUs = 1.0;
// A step of PAT between nodes, as a share of a hop, and the time that each rank adds.
inline constexpr double kPatHops = 1 / 3.5;
inline constexpr double kPatRankUs = 2.8;

// By generation of GPUs (Volta, Ampere, Hopper, Blackwell) and of 1, 2, or more nodes.
using OfGeneration = std::array<std::array<double, 3>, 4>;
inline constexpr OfGeneration kMostLl{{{39, 39, 20.4}, {87.7, 22.5, 19}, {141, 45, 35}, {282, 90, 70}}};
inline constexpr OfGeneration kMostRingLl128{{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {40, 40, 40}}};
inline constexpr OfGeneration kMostTreeLl128{{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
inline constexpr OfGeneration kMostTree{{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
inline constexpr OfGeneration kMostNvlsTree{{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96, 80}}};
inline constexpr std::array<double, 4> kNvlsEfficiency{0, 0, 0.85, 0.74};

// Shares of a ring's bandwidth.
inline constexpr double kLl = 0.5;
inline constexpr double kLl128 = 0.92;
inline constexpr double kLl128OneRankANode = 0.7;
inline constexpr double kTree = 0.92;
inline constexpr double kTreeLl = 1 / 3.8;
inline constexpr double kTreeLl128OneNode = 7.0 / 9.0;
inline constexpr double kTreeLl128 = 120.0 / 128.0;
inline constexpr double kPat = 0.75;

// Share of their bandwidth that trees reach: one entry per doubling of the size, from 64 bytes on.
inline constexpr std::array<std::array<double, 24>, 3> kTreeOfSize{
    {{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
     {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9}}};

// NVLS moves a chunk of each head on each channel at a time (calcCollChunking of src/enqueue.cc). The largest chunk is
// halved if the message has fewer than this number of chunks over all channels.
struct ChunkLimit {
  double chunks;  // over all heads and channels, at the current chunk size
  double bytes;   // largest chunk of a message with fewer chunks than that
};
inline constexpr double kNvlsChannels = 16;
inline constexpr double kNvlsChunkBytes = 131072;
inline constexpr std::array<ChunkLimit, 3> kNvlsChunks{{{64, 65536}, {8, 32768}, {2, 16384}}};
inline constexpr std::array<ChunkLimit, 2> kNvlsTreeChunks{{{4, 65536}, {1, 32768}}};
inline constexpr double kNvlsTreeManyNodes = 4;  // from this number on, chunks have at most
inline constexpr double kNvlsTreeManyNodesBytes = 65536;

// Latencies of a ring with Simple over nodes grow by these factors once each rank's part of a channel has this many
// bytes.
inline constexpr double kPlateauBytes = 64;
inline constexpr std::array<double, 4> kPlateau{1.9, 1.4, 1.4, 1.4};

}  // namespace lockstep::simulator::nccl

// The choice of NCCL's tuner: the algorithm and protocol with the least time by its own constants and the bandwidth
// that its search finds in a machine (Machine::nccl). The prediction of the real time follows below.
//
// Not modelled: CollNet (in-network reduction over the network), which needs a plugin and switches that no description
// has, and several collectives in one group call.
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

// Fits a machine's NCCL parameters (Machine::nccl) to times of its collectives.

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

// Calibrates a machine from sweeps of NCCL's own collectives within one node: `base` with those of its numbers fitted
// that affect the rows, and with a source that says so. Throws a usage Error, in which `where` names the rows, if
// `base` has no NCCL or the rows have fewer than four sizes within one node.
Machine calibrate_nccl(const Machine& base, std::span<const RowLine> rows, const std::string& where);

}  // namespace lockstep::simulator
