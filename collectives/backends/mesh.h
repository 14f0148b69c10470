// Ranks with groups: all ranks exchange messages, and members of a group run collectives over channels of their own.
// The base of training layouts (tensor, data, pipeline parallel, ...).
//
// A channel is a list of ranks whose collectives follow each other, in the same order on every member. Collectives of
// different channels run concurrently: each has memory, flags and message tags of its own, so that a rank may serve
// several channels from different threads, one thread per channel at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/backends/backend.h"
#include "collectives/transports/paced_link.h"
#include "collectives/transports/transport.h"
#include "core/device.h"
#include "core/wait.h"

namespace lockstep::tuning {
struct Table;
}

namespace lockstep::backends {

// Device for the memory, kernels and collectives of this process's ranks.
struct DeviceChoice {
  bool cuda = false;
  // GPU that all ranks share; -1: ranks of a host are dealt over its GPUs, and share them if there are fewer
  int index = -1;
  bool nccl = false;  // with cuda: collectives are NCCL's, in place of our kernels
};

// On a device with streams, a rank has one stream for its kernels and further ones, numbered from 0, for collectives.
// All collectives of a channel are enqueued on one stream; channels with the same number share a stream, so that they
// follow each other. Different streams run concurrently, except for the waits that the rank's thread enqueues
// (core::Event, core::Stream::wait).
inline constexpr int kComputeQueue = -1;  // the stream of kernels

// Makes a wrapper around a rank's device, which takes its place.
using WrapDevice = std::function<std::unique_ptr<core::Device>(std::unique_ptr<core::Device>)>;

struct MeshOptions {
  int num_ranks = 1;         // with mpi: the number that mpirun started
  int threads_per_rank = 1;  // threads per rank that wait or compute concurrently: decides whether waits may spin
  // emulated links: one port per rank, shared by its messages and collectives
  std::optional<transports::LinkSpec> link = {};
  std::chrono::milliseconds timeout{60'000};
  transports::MpiWorld* mpi = nullptr;  // set for ranks of mpirun; else ranks are threads of this process
  // table that "auto" reads; without it, or without an entry, a rule of thumb decides
  const tuning::Table* tuned = nullptr;
  DeviceChoice device = {};
  // [channel] its stream: kComputeQueue, 0, 1, ... (CUDA). Empty: all use the stream of the kernels.
  std::vector<int> queue_of_channel = {};
  std::vector<std::string> channel_names = {};  // [channel] "data group of ranks 0 2", for errors; empty: no names
  WrapDevice wrap_device = {};                  // lets tests watch the use of the device; empty: the CPU device itself
};

// Streams of a rank whose device has streams, and who enqueues on them:
//   - the rank's thread enqueues kernels on `compute` (kernels::run in a context of it), and copies on any stream;
//   - run() of a channel's collective enqueues on of_channel[channel], and waits for no other stream: before it, the
//     caller enqueues waits for the work that makes the input and the work that uses the output; after it, the caller
//     enqueues waits for the collective's end where its result is used (an event recorded in of_channel[channel]);
//   - members of a channel run its collectives in the same order. Between channels a rank may differ from its peers, as
//     a collective in one stream does not delay collectives in another; work that shares a stream (by queue_of_channel,
//     or kComputeQueue) must be enqueued in the same order by all ranks that share it;
//   - only prepare() and settle() block the rank's thread.
struct MeshQueues {
  core::Stream* compute = nullptr;
  std::vector<core::Stream*> of_channel = {};  // nullptr if the rank is not a member
};

// Resources of one rank, as the body receives them.
struct MeshRank {
  // Messages among all ranks; used by the rank's own thread. A message between threads does not wait for its
  // receive, whatever its size, at the price of a second copy; under MPI a large one waits for the receive, and moves
  // while that thread computes only if the mesh is threaded.
  transports::Transport& messages;
  // Buffers of collectives belong on this device: its memory outlives a rank that fails, as peers may be reading it.
  core::Device& device;
  core::AbortFlag& abort;
  // True if collectives may run in threads other than the rank's own; false if MPI may be called from one thread only.
  bool threaded = true;
  // Prepares this rank's part of an operation among the members of a channel; operation.root is an index among members.
  // All members prepare the same operations in the same order, in the rank's own thread. `algorithm` is as a user
  // writes it: "ring", "auto". An all-reduce gives all members the same bits, except "one_shot" among more than two,
  // which "auto" never chooses. The returned object must not outlive the body.
  std::function<Prepared(std::size_t channel, const collectives::Operation&, std::string_view algorithm)> prepare;
  // CUDA: streams that run() of a collective enqueues on. nullptr otherwise: work is done when its call returns.
  const MeshQueues* queues = nullptr;
  // Returns when all work enqueued on these streams is done; throws if any has failed.
  std::function<void()> settle = [] {};
};

using Channel = std::vector<std::int32_t>;  // its members, ascending

// Runs body on every rank of this process. A rank that throws ends all others, and the error names it
// (core::run_ranks).
void run_mesh(const MeshOptions& options, std::span<const Channel> channels,
              const std::function<void(MeshRank&)>& body);

}  // namespace lockstep::backends
