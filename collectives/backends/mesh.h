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
  int index = -1;  // of the GPU that all share; -1: ranks take GPUs in turn, and share them where there are fewer
};

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
  WrapDevice wrap_device = {};  // for tests of who uses the device; none: the CPU's as it is
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
  // On CUDA: a stream in which the rank's kernels and collectives follow each other, so that run() of a collective only
  // queues. Otherwise none: what runs is done when its call returns.
  core::Stream* queue = nullptr;
  // Returns when all that was queued is done; throws what has failed in it.
  std::function<void()> settle = [] {};
};

using Channel = std::vector<std::int32_t>;  // its members, ascending

// Runs body on every rank of this process. A rank that throws ends all others, by name (core::run_ranks).
void run_mesh(const MeshOptions& options, std::span<const Channel> channels,
              const std::function<void(MeshRank&)>& body);

}  // namespace lockstep::backends
