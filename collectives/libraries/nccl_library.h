// NCCL's collectives and messages for a group of ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "collectives/collective.h"
#include "collectives/libraries/nccl_api.h"
#include "collectives/libraries/nccl_rules.h"
#include "collectives/transports/transport.h"
#include "core/device.h"

struct ncclComm;
struct CUstream_st;

namespace lockstep::libraries {

using transports::PeerBytes;

// Enqueues a group of NCCL sends and receives. Returns ncclResult_t: the first failure, if any.
int nccl_exchange(ncclComm* communicator, CUstream_st* stream, std::span<const PeerBytes> sends,
                  std::span<const PeerBytes> receives);

// NCCL's own collectives and messages as implementations of Collective: ranks are threads of one process or run under
// MPI.

// Returns why NCCL cannot run in this process: not built in, no CUDA device, too old. Returns nothing if it can;
// nccl_refusal() then decides whether it supports an operation.
std::optional<std::string> why_no_nccl();

// Returns in one line why NCCL does not let ranks share a GPU; nothing if it does.
std::optional<std::string> why_no_shared_gpu();

// One rank's membership in a group of GPUs. Used by the rank's thread only; destroyed after the collectives made by it.
// After an Error from join, run() or wait() it is unusable: its communicators are aborted. A first run() that hangs
// stays in a thread of its own, so the program should report the error and end.
class NcclGroup {
 public:
  virtual ~NcclGroup() = default;
  // All ranks prepare the same operations in the same order: a new choice makes a communicator. Throws a usage Error
  // with nccl_refusal()'s or choice_refusal()'s text if NCCL cannot do it. The first run() sets up connections and
  // meets the other ranks; later ones only enqueue on the stream, and may be captured. Call wait() at least every 256
  // runs, as a full launch queue blocks without a deadline.
  virtual std::unique_ptr<collectives::Collective> prepare(const collectives::Operation& operation,
                                                           const NcclChoice& choice, core::Stream& stream) = 0;
  // Enqueues messages that move concurrently; those between two ranks are matched in the order in which both list them.
  // The first exchange with a peer connects to it, and blocks until the peer does the same.
  virtual void exchange(std::span<const PeerBytes> sends, std::span<const PeerBytes> receives,
                        core::Stream& stream) = 0;
  // Returns when the stream's work is done. Detects failures of other ranks; at the deadline it aborts NCCL's kernels
  // and throws Error(timeout).
  virtual void wait(core::Stream& stream) = 0;

  // Device memory, registered as the options say with this group's present and future communicators. Collective: all
  // ranks together, the same size on each.
  virtual void* allocate(std::size_t size_bytes) = 0;
  virtual void release(void* memory) = 0;
};

struct NcclGroupOptions {
  bool leads_process = true;  // true on one rank of each process, which sets the variables that NCCL reads
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  NcclRegistration registration = NcclRegistration::none;  // for memory of allocate()
  std::string group = {};                                  // NcclCaller's, for errors
  NcclConfig config = {};
};

// Collective: all ranks of the world join, each with its CUDA device. World and device must outlive the group; the
// world exchanges NCCL's identifier. Throws a usage Error if two ranks are on one GPU and NCCL does not allow that, or
// if the configuration asks for more thread blocks than a rank may have that shares its GPU, or for what this version
// does not have.
std::unique_ptr<NcclGroup> join_nccl(transports::World& world, const core::Device& device,
                                     const NcclGroupOptions& options);

}  // namespace lockstep::libraries
