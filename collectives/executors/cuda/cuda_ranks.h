// Runs plans on CUDA devices whose memory the ranks' kernels reach: of one device, shared by several ranks, or of
// peers. One launch a collective: its thread blocks are the lanes, and wait for those of other ranks by words in memory
// (board.h), so that the blocks of all ranks must be able to run at the same time. While a rank's kernel may wait for
// another rank's, that rank must do nothing before its launch that waits for the device: no cudaFree, no kernel that is
// loaded at its first launch. prepare() sees to that for itself.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/collective.h"
#include "collectives/executors/cuda/board.h"
#include "collectives/plan/plan.h"
#include "collectives/transports/world.h"
#include "core/device.h"

namespace lockstep::executors {

// All ranks give a piece of their device's memory; returns where each rank's lies as seen from this rank's kernels.
using ReachPeers = std::function<std::vector<std::byte*>(std::byte* mine)>;

// Blocks of collectives that a multiprocessor runs at once; where a rank has one there, something else fits beside it.
inline constexpr int kBlocksAMultiprocessor = 2;

struct CudaOptions {
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);  // of every wait in a kernel
  int most_blocks = 16;        // of a rank's kernel; those of all ranks on a device must fit it at the same time
  int threads = 256;           // of a block; a multiple of 32
  bool in_place_reads = true;  // peers reach each other's inputs and outputs, not only what ReachPeers has shown
  bool one_device = false;     // all ranks are on one device: kernels order their accesses for that device only
  std::int64_t stage_below_bytes = 16 << 10;    // as DirectOptions
  std::int64_t segment_bytes = 2 << 20;         // where ranks follow each other
  std::int64_t packets_below_bytes = 64 << 10;  // messages: what peers need of each other travels as packets
  bool packets_only = false;                    // refuse a plan that cannot go so, in place of passes over memory
};

// A rank's membership in a group. To be used by the rank's thread; world, device and stream outlive it, and it outlives
// the collectives that it prepared.
class CudaRanks {
 public:
  // All ranks of the world make theirs at the same time.
  CudaRanks(transports::World& world, core::Device& device, core::Stream& stream, ReachPeers reach,
            const CudaOptions& options);
  ~CudaRanks();
  CudaRanks(const CudaRanks&) = delete;
  CudaRanks& operator=(const CudaRanks&) = delete;

  // All ranks prepare the same operations in the same order, and run them in the same order. The plan must have passed
  // the checker. run() only queues on the stream; check() is to be called once that is done. Throws a usage
  // Error if the plan has more lanes than blocks can run, or cannot go by packets where it must.
  std::unique_ptr<collectives::Collective> prepare(const plan::Plan& plan, const collectives::Operation& operation);

  // Throws Error(timeout) with the rank, the lane and what was waited for if a kernel of this rank or a peer's has
  // given up. The stream's work must be done.
  void check() const;

  // All ranks, at the end, if none has failed: lets go of peers' memory before any of them frees it.
  void disband();

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::executors
