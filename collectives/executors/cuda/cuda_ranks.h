// Runs plans on CUDA devices whose memory the ranks' kernels can access: on one device that several ranks share, or on
// peers. One launch per collective: its thread blocks are the lanes, and wait for other ranks' blocks by polling words
// in memory (device_program.h), so the blocks of all ranks must be able to run at the same time. While a rank's kernel
// may wait for another rank's, that other rank must not wait for the device before its launch: no cudaFree, no kernel
// that is loaded at its first launch. prepare() ensures that for its own calls.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/collective.h"
#include "collectives/executors/cuda/device_program.h"
#include "collectives/plan/plan.h"
#include "collectives/transports/transport.h"
#include "core/device.h"

namespace lockstep::executors {

// Each rank passes a piece of its device's memory; returns the address of each rank's piece as this rank's kernels see
// it.
using ReachPeers = std::function<std::vector<std::byte*>(std::byte* mine)>;

// Blocks of collectives that a multiprocessor runs at once; with one block per rank there is room for another kernel
// beside it.
inline constexpr int kBlocksPerMultiprocessor = 2;

struct CudaOptions {
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);  // timeout of every wait in a kernel
  int most_blocks = 16;  // per rank's kernel; all ranks' blocks on a device must be able to run at once
  int threads = 256;     // per block; a multiple of 32
  // peers can access each other's inputs and outputs, not only the memory passed to ReachPeers
  bool in_place_reads = true;
  // All ranks are on one device and in one process: kernels order their accesses at device scope, which covers the
  // threads of one program only (PTX ISA, Memory Consistency Model, Scope); kernels of other processes need the
  // system's.
  bool one_device = false;
  std::int64_t stage_below_bytes = 16 << 10;    // as in DirectOptions
  std::int64_t segment_bytes = 2 << 20;         // size of pieces if ranks follow each other
  std::int64_t packets_below_bytes = 64 << 10;  // messages below this size: ranks exchange their data as packets
  // refuse a plan that cannot use packets, in place of running it by passes over memory
  bool packets_only = false;
};

// A rank's membership in a group. Used by the rank's thread only; world, device and stream outlive it, and it outlives
// the collectives that it prepared.
class CudaRanks {
 public:
  // Collective: all ranks of the world make theirs at the same time.
  CudaRanks(transports::World& world, core::Device& device, core::Stream& stream, ReachPeers reach,
            const CudaOptions& options);
  ~CudaRanks();
  CudaRanks(const CudaRanks&) = delete;
  CudaRanks& operator=(const CudaRanks&) = delete;

  // All ranks prepare the same operations in the same order, and run them in the same order. The plan must have passed
  // the checker. run() only enqueues on the stream; call check() when that work is done. Throws a usage Error if the
  // plan has more lanes than blocks can run, or cannot use packets although packets_only is set.
  std::unique_ptr<collectives::Collective> prepare(const plan::Plan& plan, const collectives::Operation& operation);

  // Throws Error(timeout) if a kernel of this rank or of a peer has timed out; the text names the rank, the lane and
  // the event it waited for. The stream's work must be done.
  void check() const;

  // Collective: all ranks call it at the end, if none has failed: closes peers' memory before a peer frees it.
  void disband();

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::executors
