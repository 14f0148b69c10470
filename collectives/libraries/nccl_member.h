// A rank's end of NCCL's communicators, and how it waits for them: no call hangs, what fails is aborted once, and an
// error names the rank, the device, the call, and NCCL's own last error. Without NCCL: over the seam of nccl_api.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/libraries/nccl_api.h"
#include "core/error.h"
#include "core/wait.h"

namespace lockstep::libraries {

// Where a rank's calls are made, and how long they may take.
struct NcclPlace {
  int rank;
  int device;
  std::chrono::nanoseconds timeout;
  // Thread blocks of a call, at most; 0: as many as NCCL likes.
  int most_blocks = 0;
  // Makes the device current in the calling thread; nothing in tests.
  std::function<void()> set_device = [] {};
  // Throws if another rank has failed; asked while waiting.
  std::function<void()> check_peers = [] {};
};

// A communicator. Shared with calls that may outlive their caller (core/deadline_call.h).
struct NcclMember {
  const NcclApi& api;
  NcclPlace place;
  int num_ranks;
  int rank;  // in this communicator
  ncclComm* communicator = nullptr;
  bool broken = false;  // aborted, or stuck in a call: NCCL must not be asked again
};
using NcclMemberPtr = std::shared_ptr<NcclMember>;

// Error(rank_lost) for NCCL's remote errors and Error(nccl) for all others. May be asked without a communicator.
core::Error nccl_error(const NcclApi& api, const NcclPlace& place, int result, const std::string& call,
                       ncclComm* communicator);

// Makes a call on the communicator (or the parent's, of a split) and waits, asking for its state, until it is done. A
// failure, a peer's, and the deadline abort the communicator; then they throw.
void settle(NcclMember& member, const std::string& call, int result);

// A call that may stay in NCCL without a deadline, as the first on a blocking communicator: it is made on a thread of
// its own. Throws Error(timeout) at the deadline; the call then stays behind, so all that it uses must be its own or
// shared with it.
void call_in_time(const NcclMemberPtr& member, const std::string& call, const std::function<void()>& body);

// All ranks of the identifier's group together.
NcclMemberPtr join_members(const NcclApi& api, const NcclPlace& place, int num_ranks, int rank,
                           const NcclIdentifier& identifier);
// All ranks of the parent together; those of a color, in the order of their ranks there, are a communicator. nullptr
// for who has none (-1).
NcclMemberPtr split_members(const NcclMemberPtr& parent, int color, int num_ranks, int rank);

// Communicators of a rank that end together: all destroyed, or all aborted if one is broken or the rank is failing, as
// its peers may never come to destroy theirs.
class NcclMembers {
 public:
  NcclMembers() = default;
  ~NcclMembers();
  NcclMembers(const NcclMembers&) = delete;
  NcclMembers& operator=(const NcclMembers&) = delete;

  void add(NcclMemberPtr member) { members_.push_back(std::move(member)); }
  // Their progress, for a caller that waits for it. Throws the failure, or that the deadline has passed, with all of
  // them aborted.
  void check(const core::Deadline& deadline);
  void abort();

 private:
  std::vector<NcclMemberPtr> members_;  // parents before their children
};

}  // namespace lockstep::libraries
