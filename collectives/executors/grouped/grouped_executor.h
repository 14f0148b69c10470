// Runs any plan on a stream that takes work on memory and groups of messages, in order: plans by NCCL's sends and
// receives. message_rounds.h says which message goes in which group, and why that cannot hang.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"
#include "core/device.h"

namespace lockstep::executors {

// To or from a peer.
struct PeerMessage {
  int peer;
  std::byte* memory;
  std::int64_t bytes;
};

// to = a (+) b, or a copy of a.
struct Combination {
  void* to;  // may be a
  const void* a;
  const void* b;  // nullptr: there is no b
  std::int64_t count;
  core::DType dtype;
  core::ReduceOp op;
  int average_over;  // > 0: divide the result by this many
};

// Takes work of one rank, each piece to begin when all before is done; both calls may return before theirs is.
class GroupStream {
 public:
  virtual ~GroupStream() = default;
  virtual void combine(const Combination& combination) = 0;
  // All at once. Messages between two ranks meet in the order in which both tell them.
  virtual void exchange(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives) = 0;
};

struct GroupOptions {
  int window = 8;  // messages of a lane and a peer in one group; as many staging slots a lane
};

// The rank's side of the plan; all ranks must use the same plan, operation and options. The plan is checked; one that
// does not work in place runs on a copy of the input where the operation is in place. Scratch is the device's, which
// outlives the collective, as does the stream. run() calls the stream with the same pieces of work each time, so that
// what it queues may be captured.
std::unique_ptr<collectives::Collective> make_grouped_collective(const plan::Plan& plan,
                                                                 const collectives::Operation& operation, int rank,
                                                                 core::Device& device, GroupStream& stream,
                                                                 const GroupOptions& options = {});

}  // namespace lockstep::executors
