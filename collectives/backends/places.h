// Placement of ranks: which share a host, a process, a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "collectives/transports/transport.h"

namespace lockstep::backends {

// Identifies a process: the same for all its threads, different for any two processes of a world.
struct Process {
  std::uint64_t host;
  std::int64_t number;
};
Process this_process();

// Placement of all ranks, as one rank sees it. The ranks of a process follow each other. Therefore the rank_of_host of
// GPU g of thread t in process p of the host is (p * threads + t) * gpus_per_thread + g, which is the device number
// that nccl-tests uses.
struct HostPlacement {
  int rank_of_host = 0;
  int ranks_of_host = 1;
  int ranks_of_process = 1;
  bool leads_process = true;  // it is the lowest rank of its process
  bool one_host = true;
  bool one_process = true;
};
// The same from the process of each rank: all[rank].
HostPlacement places_among(std::span<const Process> all, int rank);
// Collective: all ranks call it at the same time.
HostPlacement host_placement(transports::World& world);

// ---- The GPU that a rank takes, and its share of the GPU: plain arithmetic.

// Ranks of a host are dealt over its GPUs in turn; if there are more ranks than GPUs, ranks share GPUs.
struct GpuAssignment {
  int device;  // 0 .. gpus - 1
  int ranks_on_it;
};
GpuAssignment assigned_gpu(int rank_of_host, int ranks_of_host, int gpus);
// Why the ranks of this process cannot all use CUDA's NULL stream, of which a process has one per GPU; nothing if they
// can.
std::optional<std::string> null_stream_refusal(const HostPlacement& places, int gpus);
// The most ranks of this rank's process that are on one GPU.
inline int sharers_in_process(const HostPlacement& places, int gpus) {
  return (places.ranks_of_process + gpus - 1) / gpus;
}

// Most ranks of one process on a device. It has 32 connections (core/device_cuda.cpp); a rank has a stream for
// kernels, a trainer's rank a second, and one stream of the process is for copies: work that is enqueued after another
// rank's waiting kernel, in a connection that they share, may be the work that the kernel waits for.
inline constexpr int kMostRanksOfAProcess = 16;

// A rank that has its GPU alone is limited by links. 32 blocks of 256 threads with 64 bytes each have 512 KiB in
// flight: NVLink's 450 GB/s for 1.1 us. NCCL uses 16 to 32 blocks, too; kernels that compute meanwhile need the rest of
// the GPU.
inline constexpr int kBlocksAlone = 32;

// Thread blocks per rank on a shared device, such that the blocks of all its ranks run at the same time, two on each
// multiprocessor. `wanted`, if not 0, is the number that the user asks for. Returns nothing if that does not fit.
std::optional<int> blocks_of_a_rank(int num_multiprocessors, int ranks_on_it, int wanted = 0);

// The same where ranks compute while collectives run, `side_by_side` at once on each rank: at most kBlocksAlone for
// each collective, and all together on at most three quarters of the multiprocessors, even with one block on each. A
// block of a GEMM may need a whole multiprocessor, and it may be ahead of the collective that another rank's blocks
// wait for.
std::optional<int> blocks_beside_compute(int num_multiprocessors, int ranks_on_it, int side_by_side);

}  // namespace lockstep::backends
