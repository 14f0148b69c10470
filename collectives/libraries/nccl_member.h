// One rank's NCCL communicators, and waiting for them: no call hangs, a failed communicator is aborted once, and an
// error names the rank, the device, the call, and NCCL's own last error. No NCCL header: it uses the interface of
// nccl_api.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/collective.h"
#include "collectives/libraries/nccl_api.h"
#include "collectives/libraries/nccl_rules.h"
#include "collectives/transports/transport.h"
#include "core/device.h"
#include "core/error.h"
#include "core/wait.h"

namespace lockstep::libraries {

// Rank and device of a rank's NCCL calls, and their deadline.
struct NcclCaller {
  int rank;
  int device;
  std::chrono::nanoseconds timeout;
  NcclConfig config = {};                                  // configuration of its communicators
  NcclRegistration registration = NcclRegistration::none;  // how its buffers are registered
  std::string group = {};  // among several of the rank: "data group of ranks 0 2"; for errors
  // Makes the device current in the calling thread; nothing in tests.
  std::function<void()> set_device = [] {};
  // Throws if another rank has failed; called while waiting.
  std::function<void()> check_peers = [] {};
};

// A communicator. Shared with calls that may outlive their caller (core/wait.h).
struct NcclMember {
  const NcclApi& api;
  NcclCaller caller;
  int num_ranks;
  int rank;  // in this communicator
  ncclComm* communicator = nullptr;
  bool broken = false;  // aborted, or stuck in a call: must not be used again
};
using NcclMemberPtr = std::shared_ptr<NcclMember>;

// Error(rank_lost) for NCCL's remote errors, Error(nccl) for all others. The communicator may be nullptr.
core::Error nccl_error(const NcclApi& api, const NcclCaller& caller, int result, const std::string& call,
                       ncclComm* communicator);

// Waits for a call on the communicator (for a split: the parent) by polling its state until it is done. A failure here
// or of a peer, and the deadline, abort the communicator and throw.
void settle(NcclMember& member, const std::string& call, int result);

// Runs a call that may block in NCCL without a deadline, such as the first on a blocking communicator, in a thread of
// its own. Throws Error(timeout) at the deadline; the call goes on then, so it must own or share all that it uses.
void call_in_time(const NcclMemberPtr& member, const std::string& call, const std::function<void()>& body);

// Returns rank 0's identifier on every rank; under mpirun it travels over MPI. Collective: all ranks of the world call
// it together.
NcclIdentifier share_identifier(const NcclApi& api, const NcclCaller& caller, transports::World& world);

// Collective: all ranks of the identifier's group call it together.
NcclMemberPtr join_members(const NcclApi& api, const NcclCaller& caller, int num_ranks, int rank,
                           const NcclIdentifier& identifier);
// A rank's GPU, as the others need to know it.
struct NcclGpu {
  GpuUuid uuid;
  int num_multiprocessors;
  NcclSharing sharing;
};

// Collective: all ranks of the world call it together. The world's rank 0 makes an identifier, the world brings it to
// the others, and each joins under its number there. Limits caller.config to the thread blocks that its GPU has room
// for. Throws a usage Error if two ranks are on one GPU and NCCL does not let them share it, or if this NCCL does not
// have what the caller's configuration and registration ask for. A rank of several worlds
// joins them in sequence, in an order that is the same on all ranks: whoever is missing in a world is in an earlier
// one, and in the earliest nobody is missing.
NcclMemberPtr join_world(const NcclApi& api, NcclCaller& caller, transports::World& world, const NcclGpu& gpu);
// Collective: all ranks of the parent call it together; ranks of one color form a communicator, in the order of their
// ranks in the parent. Returns nullptr for color -1.
NcclMemberPtr split_members(const NcclMemberPtr& parent, int color, int num_ranks, int rank);

// Communicators of a rank that end together: all are destroyed, or all aborted if one is broken or the rank is failing,
// as its peers may never come to destroy theirs.
class NcclMembers {
 public:
  NcclMembers() = default;
  ~NcclMembers();
  NcclMembers(const NcclMembers&) = delete;
  NcclMembers& operator=(const NcclMembers&) = delete;

  void add(NcclMemberPtr member) { members_.push_back(std::move(member)); }
  // Checks all for errors while a caller waits. Throws if one has failed or the deadline has passed, after aborting all
  // of them.
  void check(const core::Deadline& deadline);
  void abort();

 private:
  std::vector<NcclMemberPtr> members_;  // parents before their children
};

// Memory that NCCL allocates and registers with every communicator of a rank, later ones included. No NCCL header: it
// uses the interface of nccl_api.h.

// Must be destroyed before the communicators. Collective: all ranks do the same with theirs.
class NcclBuffers {
 public:
  NcclBuffers(const NcclApi& api, NcclCaller caller);  // registered as the caller says
  ~NcclBuffers();
  NcclBuffers(const NcclBuffers&) = delete;
  NcclBuffers& operator=(const NcclBuffers&) = delete;

  // NCCL maps whole pages of this size: an allocation is rounded up to it.
  static constexpr std::size_t kPageBytes = std::size_t{2} << 20;

  void add(const NcclMemberPtr& member);   // a communicator; all buffers are registered with it
  void* allocate(std::size_t size_bytes);  // registered with all communicators
  void release(void* memory);              // no work may use it any more

 private:
  struct Enrolment {
    NcclMemberPtr member;
    void* handle;
  };
  struct Buffer {
    std::size_t size_bytes;
    std::vector<Enrolment> enrolments;
  };
  void enroll(const NcclMemberPtr& member, void* memory, Buffer& buffer);
  void strike_off(Buffer& buffer);

  const NcclApi& api_;
  const NcclCaller caller_;
  std::vector<NcclMemberPtr> members_;
  std::map<void*, Buffer> buffers_;
};

// One operation of one rank by NCCL, which only builds with NCCL have: the result of NcclGroup::prepare().
std::unique_ptr<collectives::Collective> make_nccl_collective(NcclMemberPtr member,
                                                              const collectives::Operation& operation,
                                                              core::Stream& stream);

}  // namespace lockstep::libraries
