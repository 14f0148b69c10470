// Where ranks run: which share a host, which a process, and which a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/transports/world.h"

namespace lockstep::backends {

// The same for all threads of a process, different for any two processes of a world.
struct Process {
  std::uint64_t host;
  std::int64_t number;
};
Process this_process();

// Where every rank runs, as one of them sees it.
struct HostPlaces {
  int rank_of_host = 0;
  int ranks_of_host = 1;
  bool one_host = true;
  bool one_process = true;
};
// All ranks call it at the same time.
HostPlaces host_places(transports::World& world);

// ---- Which GPU a rank takes, and how much of it: plain arithmetic.

// Ranks of a host take its GPUs in turn, one after the other; where there are more ranks than GPUs, they share them.
struct GpuPlace {
  int device;  // 0 .. gpus - 1
  int ranks_on_it;
};
GpuPlace gpu_place(int rank_of_host, int ranks_of_host, int gpus);

// Ranks of one process that may share a device. It has 32 connections (core/cuda_inventory.cpp), a rank has a stream
// for kernels, a trainer's rank a second, and one stream of the process is for copies: what stands behind another
// rank's waiting kernel in a connection that they share may be what that kernel waits for.
inline constexpr int kMostRanksOfAProcess = 16;

// A rank that has its GPU alone is limited by links. 32 blocks of 256 threads with 64 bytes each are 512 KiB under way:
// NVLink's 450 GB/s for 1.1 us. NCCL takes 16 to 32 blocks, too; what computes meanwhile needs the rest of the GPU.
inline constexpr int kBlocksAlone = 32;

// Thread blocks that each of the ranks on a device may have run at the same time, if they are to run all at once, two
// on each multiprocessor. `wanted`, if not 0, is what the user asks for. Nothing if that does not fit.
std::optional<int> blocks_of_a_rank(int num_multiprocessors, int ranks_on_it, int wanted = 0);

}  // namespace lockstep::backends
