// Ranks with groups: all ranks exchange messages, and members of a group run collectives over channels of their own.
// What a training layout (tensor, data, pipeline parallel, ...) stands on.
//
// A channel is a list of ranks whose collectives follow each other, in the same order on every member. Collectives of
// different channels run side by side: each has memory, gates and message tags of its own, so that a rank may serve
// several from different threads, one thread a channel at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/backends/backend.h"
#include "collectives/transports/paced_link.h"
#include "collectives/transports/transport.h"
#include "core/device.h"
#include "core/gate.h"

namespace lockstep::tuning {
struct Table;
}

namespace lockstep::backends {

// Where the ranks of this process have their memory, their kernels and their collectives.
struct DeviceChoice {
  bool cuda = false;
  int index = -1;     // of the GPU that all share; -1: ranks take GPUs in turn, and share them where there are fewer
  bool nccl = false;  // on CUDA: collectives are NCCL's, in place of kernels of ours
};

// On a device whose work is queued a rank has one stream for its kernels and further ones, numbered from 0, for
// collectives. All collectives of a channel are queued in one stream; channels that are given the same number share it,
// so that they follow each other. What is in different streams runs side by side, but for the waits that the rank's
// thread queues (core::Event, core::Stream::wait).
inline constexpr int kComputeQueue = -1;  // the stream of kernels

// What takes the place of a rank's device, over it.
using WrapDevice = std::function<std::unique_ptr<core::Device>(std::unique_ptr<core::Device>)>;

struct MeshOptions {
  int num_ranks = 1;       // of mpi: what mpirun says
  int threads_a_rank = 1;  // that will wait or compute side by side in each rank: whether waits may spin
  std::optional<transports::LinkSpec> link = {};  // emulated: one port a rank, shared by its messages and collectives
  std::chrono::milliseconds timeout{60'000};
  transports::MpiWorld* mpi = nullptr;   // ranks of mpirun; else threads of this process
  const tuning::Table* tuned = nullptr;  // what "auto" means; without it, or where it says nothing, a rule of thumb
  DeviceChoice device = {};
  // Of each channel, its stream: kComputeQueue, 0, 1, ... (CUDA). Empty: all follow the kernels.
  std::vector<int> queue_of_channel = {};
  WrapDevice wrap_device = {};  // for tests of who uses the device; none: the CPU's as it is
};

// The streams of a rank whose work is queued. Who queues what where:
//   - the rank's thread queues kernels in `compute` (kernels::run in a context of it), and copies where it likes;
//   - run() of a channel's collective queues it in of_channel[channel], and waits for no other stream: the caller has
//     queued waits there for what made the input and for whoever used the output, and queues waits for the collective's
//     end where its result is used (an event recorded in of_channel[channel] behind run());
//   - members of a channel run its collectives in the same order. Between channels a rank may differ from its peers, as
//     a collective in one stream does not hold up those of another; who shares a stream (by queue_of_channel, or
//     kComputeQueue) must be queued in the same order by all ranks that share it;
//   - nothing blocks the rank's thread but prepare() and settle().
struct MeshQueues {
  core::Stream* compute = nullptr;
  std::vector<core::Stream*> of_channel = {};  // nullptr where the rank is no member
};

// What a rank gets.
struct MeshRank {
  // Among all ranks; of the rank's own thread. Between threads a message of any size is sent without its receive, at
  // the price of a second copy; under MPI a large one waits for it, and moves while that thread computes only if the
  // mesh is threaded.
  transports::Transport& messages;
  // Its memory outlives a rank that fails, as others may just be reading it: where the buffers of collectives belong.
  core::Device& device;
  core::AbortFlag& abort;
  // Whether collectives may run in threads other than the rank's own: not where MPI may be called by one only.
  bool threaded = true;
  // This rank's side of an operation among the members of a channel; operation.root counts members. All members prepare
  // the same operations in the same order, in the rank's own thread. `algorithm` as a user writes it: "ring", "auto".
  // An all-reduce gives all members the same bits, but for "one_shot" among more than two, which "auto" never means.
  // What it returns must not outlive the body.
  std::function<Prepared(std::size_t channel, const collectives::Operation&, std::string_view algorithm)> prepare;
  // On CUDA: where run() of a collective queues. Otherwise none: what runs is done when its call returns.
  const MeshQueues* queues = nullptr;
  // Returns when all that was queued in these streams is done; throws what has failed in it.
  std::function<void()> settle = [] {};
};

using Channel = std::vector<std::int32_t>;  // its members, ascending

// Runs body on every rank of this process. A rank that throws ends all others, by name (core::run_ranks).
void run_mesh(const MeshOptions& options, std::span<const Channel> channels,
              const std::function<void(MeshRank&)>& body);

}  // namespace lockstep::backends
