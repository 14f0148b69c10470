// The model of NCCL 2.30.7's tuner: the constants by which it prices its algorithms and protocols, and the terms of a
// time that the choice (nccl_choice.cpp) and the prediction (nccl_time.cpp) share.
#pragma once

#include <array>

#include "simulator/network/nccl.h"

namespace lockstep::simulator {
namespace nccl {

// From ncclTunerConstantsDefaults, nvlsEfficiency and treeCorrectionFactor of NCCL's src/graph/tuning.cc, with the
// names of its docs. Microseconds and GB/s.

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

// Share of a port's bandwidth that copies by copy engines reach while it sends and receives: 749 of 900 GB/s, both ways
// together, between two H100 (https://github.com/NVIDIA/nccl/issues/1264). Kernels reach less, as they send 128 bytes
// at a time and copy engines 256 (https://github.com/NVIDIA/nccl-tests/issues/149).
inline constexpr double kCopyEngine = 0.832;

// Latencies of a ring with Simple over nodes grow by these factors once each rank's part of a channel has this many
// bytes.
inline constexpr double kPlateauBytes = 64;
inline constexpr std::array<double, 4> kPlateau{1.9, 1.4, 1.4, 1.4};

}  // namespace nccl

// Latency of start and steps, in microseconds.
double nccl_latency_us(const Nccl& nccl, const NcclCall& call, const NcclWay& way);
// Latencies of the steps inside a node.
const nccl::Hops& hops_in_node(const Nccl& nccl);
// Levels of a tree of nodes.
double hops_between_nodes(const NcclCall& call);
// Largest bus bandwidth of NVLSTree's heads, in GB/s.
double most_nvls_tree_gbps(const Nccl& nccl, const NcclCall& call);
// Bandwidth of trees at a message size, as a share of their bandwidth at large sizes.
double tree_share(double bytes, Protocol protocol);
// Largest bandwidth of LL for the call's number of nodes, in GB/s.
double most_ll_gbps(const Nccl& nccl, const NcclCall& call);

}  // namespace lockstep::simulator
