// Runs any plan on a stream that takes work on memory and groups of messages, in order: plans on NCCL's sends and
// receives. message_program.h says how messages are grouped, and why that cannot hang.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"
#include "core/device.h"

namespace lockstep::executors {

// A message to or from a peer.
struct PeerMessage {
  int peer;
  std::byte* memory;
  std::int64_t bytes;
};

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
  virtual void exchange(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives) = 0;
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

// Runs a GroupStream's combinations by our kernels, on a CUDA stream.

// Used by the rank's thread only; the device and the stream outlive it.
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
