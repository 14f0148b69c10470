// NCCL's own collectives and messages behind the Collective seam: ranks as threads of one process or under MPI.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "collectives/collective.h"
#include "collectives/libraries/nccl_api.h"
#include "collectives/libraries/nccl_choice.h"
#include "collectives/libraries/nccl_messages.h"
#include "collectives/libraries/nccl_rules.h"
#include "collectives/transports/world.h"
#include "core/device.h"

namespace lockstep::libraries {

// Why NCCL cannot run in this process: not built in, no CUDA device, too old. Nothing if it can; nccl_refusal() then
// says whether it can do an operation.
std::optional<std::string> why_no_nccl();

std::string nccl_library_version();  // "2.28.9"; empty where it is not built in

int nccl_library_version_code();  // 22809, as ncclGetVersion has it; 0 where it is not built in

// Why NCCL does not let ranks share a GPU, in one line; nothing if it does.
std::optional<std::string> why_no_shared_gpu();

// One rank's membership in a group of GPUs. Used by the rank's thread only; goes after the collectives made by it.
// After an Error out of join, run() or wait() it is unusable: its communicators are aborted. A first run() that hangs
// stays behind on a thread of its own, so the program should report the error and end.
class NcclGroup {
 public:
  virtual ~NcclGroup() = default;
  // All ranks prepare the same operations in the same order: a choice that is new makes a communicator. Throws a usage
  // Error with nccl_refusal()'s or choice_refusal()'s text where NCCL cannot do it. The first run() sets up connections
  // and meets the other ranks; later ones only enqueue on the stream, and may be captured. To be followed by wait() at
  // least every 256 runs, as a full launch queue blocks without a deadline.
  virtual std::unique_ptr<collectives::Collective> prepare(const collectives::Operation& operation,
                                                           const NcclChoice& choice, core::Stream& stream) = 0;
  // Enqueues messages that go all at once; those between two ranks meet in the order in which both tell them. The first
  // with a peer meets it.
  virtual void exchange(std::span<const PeerBytes> sends, std::span<const PeerBytes> receives,
                        core::Stream& stream) = 0;
  // Until the stream's work is done. Sees failures of other ranks; at the deadline it aborts NCCL's kernels and throws
  // Error(timeout).
  virtual void wait(core::Stream& stream) = 0;

  // Memory of the device, registered as the options say with what this group uses and will use. All ranks together, as
  // much on each.
  virtual void* allocate(std::size_t size_bytes) = 0;
  virtual void release(void* memory) = 0;
};

struct NcclGroupOptions {
  bool leads_process = true;  // one rank in each process, which sets variables that NCCL reads
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  NcclRegistration registration = NcclRegistration::none;  // of allocate()
};

// All ranks of the world join, each with its CUDA device. World and device must outlive the group; the world is used to
// exchange NCCL's identifier. Throws a usage Error if two ranks are on one GPU and NCCL does not let them.
std::unique_ptr<NcclGroup> join_nccl(transports::World& world, const core::Device& device,
                                     const NcclGroupOptions& options);

}  // namespace lockstep::libraries
