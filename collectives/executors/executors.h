// The executors: each turns a plan into a Collective of one rank, over memory that ranks share (direct), over any
// transport (message), or over a stream that takes groups of messages (grouped).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"
#include "collectives/plan/program.h"
#include "collectives/transports/local_world.h"
#include "collectives/transports/transport.h"
#include "core/device.h"

namespace lockstep::executors {

// Runs plans on ranks that share memory: sources of other ranks are read in place, several at once.
//
// The plan is lowered to a Program (plan/program.h) once. A run publishes the addresses of this rank's buffers and
// interleaves its lanes: wait until other lanes have done enough instructions, one pass over memory, count.
//
// Two protocols, both made by lowering passes and chosen by sizes and by the deadlock check, never by an algorithm's
// name. In place: peers read the user's buffers, and a rank leaves when they have. Staged: data to send is first copied
// to scratch, and a rank leaves at once; even and odd calls alternate between two scratch areas, so that a rank may run
// one call ahead of ranks that still read.

struct DirectOptions {
  // most bytes that one rank sends in a chunk: below this stage, else in place
  std::int64_t stage_below_bytes = 16 << 10;
  std::int64_t segment_bytes = 128 << 10;  // passes are cut into pieces of about this size
  // Bytes of all ranks' messages together, above which data that a pass stores for several ranks bypasses the caches,
  // as it would not stay in them.
  std::int64_t bypass_above_bytes = 3 << 20;
};

// The plan must have passed the checker (out of place; adaptations for in-place runs are made here).
std::unique_ptr<collectives::Collective> make_direct(const plan::Plan& plan, const collectives::Operation& operation,
                                                     transports::LocalWorld& world, const DirectOptions& options);

// Chooses the lowering for the direct executor, by the results of the checker and of the deadlock search on the plan.
// Throws Error(internal) if every lowering of the plan deadlocks, which must not happen for a checked plan.
plan::Program lower_for_direct(const plan::Plan& plan, const collectives::Operation& operation,
                               const DirectOptions& options);

// Runs any plan over any Transport: each rank interprets its own part, and bytes travel as messages.
//
// No operation of a lane blocks another: the rank starts whatever its memory allows, posts receives ahead, and reduces
// a segment while the next is in flight. run() allocates nothing. docs/architecture.md shows its place in the whole.

struct MessageOptions {
  std::int64_t segment_bytes = 128 << 10;    // the largest message
  int recv_window = 4;                       // receives that a lane posts ahead
  int send_window = 4;                       // sends that a lane has in flight to a peer
  std::chrono::milliseconds timeout{30000};  // deadline without any message sent or received
};

// Prepares this rank's part of the plan; all ranks must use the same plan, operation and options. The plan is checked;
// one that does not work in place runs on a copy of the input if the operation is in place. The transport must outlive
// the collective. Buffers are in host memory.
std::unique_ptr<collectives::Collective> make_message_collective(const plan::Plan& plan,
                                                                 const collectives::Operation& operation,
                                                                 transports::Transport& transport,
                                                                 const MessageOptions& options = {});

// Runs any plan on a stream that takes work on memory and groups of messages, in order: plans on NCCL's sends and
// receives. message_program.h describes how messages are grouped, and why that cannot hang.

// to = a (+) b, or a copy of a.
struct Combination {
  void* to;  // may be a
  const void* a;
  const void* b;  // nullptr: a copy
  std::int64_t count;
  core::DType dtype;
  core::ReduceOp op;
  int average_over;  // if above 0, the result is divided by it
};

// Enqueues work of one rank, each piece to begin when all earlier ones are done; both functions may return before the
// work is done.
class GroupStream {
 public:
  virtual ~GroupStream() = default;
  virtual void combine(const Combination& combination) = 0;
  // All messages run concurrently. Messages between two ranks are matched in the order in which both list them.
  virtual void exchange(std::span<const transports::PeerBytes> sends,
                        std::span<const transports::PeerBytes> receives) = 0;
};

struct GroupOptions {
  int window = 8;  // messages per lane and peer in one group; also the staging slots per lane
};

// Prepares this rank's part of the plan; all ranks must use the same plan, operation and options. The plan is checked;
// one that does not work in place runs on a copy of the input if the operation is in place. Scratch is allocated on the
// device, which outlives the collective, as does the stream. run() enqueues the same work each time, so it may be
// captured.
std::unique_ptr<collectives::Collective> make_grouped_collective(const plan::Plan& plan,
                                                                 const collectives::Operation& operation, int rank,
                                                                 core::Device& device, GroupStream& stream,
                                                                 const GroupOptions& options = {});

// Runs a GroupStream's combinations by our kernels, on a CUDA stream. Used by the rank's thread only; the device and
// the stream outlive it.
class CudaCombiner {
 public:
  CudaCombiner(core::Device& device, core::Stream& stream, int rank);
  ~CudaCombiner();
  CudaCombiner(const CudaCombiner&) = delete;
  CudaCombiner& operator=(const CudaCombiner&) = delete;
  void combine(const Combination& combination);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::executors
