// Backends: everything that can run a collective, with one interface, and the plan that an algorithm's name stands for.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collective.h"
#include "collectives/libraries/nccl_api.h"
#include "collectives/plan/plan.h"
#include "collectives/transports/paced_link.h"
#include "collectives/transports/transport.h"
#include "core/device.h"
#include "core/device_cuda.h"
#include "core/ranks.h"

namespace lockstep::backends {

// Makes the plan for one operation from an algorithm's name: fills in options that depend on the message size.

// Plan of "name:key=value...". Pipelined algorithms (option `chunks`) get as many chunks as make each about
// kChunkBytes, unless the user chooses a number. plan.algorithm is the label without the options that were filled in.
inline constexpr std::int64_t kChunkBytes = 64 << 10;
plan::Plan plan_for(const collectives::Operation& operation, int num_ranks, std::string_view algorithm);

}  // namespace lockstep::backends

// Backends: the ways to start ranks and run collectives, with one interface. A sweep, a test or a trainer names a
// backend and an algorithm, and sees no difference.
//
//   local   ranks of this machine over shared memory; plans by the direct executor; links emulated on request
//   mpi     ranks of mpirun; plans by the message executor, and "library": MPI's own collectives, with Open MPI also as
//           "library:algorithm=ring" (libraries/mpi_library.h)
//   cuda    ranks on GPUs, several may share one, threads or processes of mpirun on one host; plans by
//           the CUDA executor
//   nccl    one GPU per rank, threads or processes of mpirun; plans by groups of NCCL's sends and receives, and
//           "library": NCCL's own collectives, also as "library:algo=ring:proto=ll128" (libraries/nccl_rules.h)
namespace lockstep::transports {

class MpiWorld;
}

namespace lockstep::backends {

// Algorithm name that selects the library's own collective (NCCL's, MPI's).
inline constexpr std::string_view kLibrary = "library";
// True also with options: "library:algo=ring".
inline bool asks_library(std::string_view algorithm) {
  return algorithm == kLibrary || algorithm.starts_with("library:");
}

// One rank's part of an operation, ready to run.
struct Prepared {
  std::unique_ptr<collectives::Collective> collective;
  std::string algorithm;           // label: "ring:lanes=2", "library"
  std::string executor;            // "direct", "message", "cuda", "nccl", "library"
  std::optional<plan::Plan> plan;  // the plan that it runs; nothing for a library's collective
};
// A plan's collective, with the plan's label.
Prepared prepared_plan(std::unique_ptr<collectives::Collective> collective, std::string_view executor,
                       plan::Plan&& plan);

// Resources of one rank.
struct Endpoint {
  transports::World& world;
  core::Device& device;
  core::Stream& stream;
  // All ranks prepare the same operations in the same order; the plan has passed the checker (plan/check.h).
  std::function<Prepared(const collectives::Operation&, plan::Plan)> prepare_plan;
  // Prepares the library's own collective, as a user names it: "library:algo=ring". nullptr if the backend has none.
  std::function<Prepared(const collectives::Operation&, std::string_view asked)> prepare_library = nullptr;
  // Returns when the work that run() has enqueued on the stream is done; on the host it is done already.
  std::function<void()> finish = [] {};
  // Call it some time after finish(): throws Error if the finished work has failed.
  std::function<void()> check = [] {};
  // Allocates inputs and outputs, if they must not come from the device's allocator. The same size on every rank.
  struct Buffers {
    std::function<void*(std::size_t size_bytes)> allocate;
    std::function<void(void*)> release;
  };
  std::optional<Buffers> buffers = std::nullopt;
  // Memory of the rank's GPU, with BackendOptions::watches_memory: the free bytes before any rank joined a backend, and
  // the bytes that joining this backend took, by all ranks on the GPU together.
  struct Memory {
    std::size_t free_at_start_bytes = 0;
    std::size_t joining_bytes = 0;
  };
  Memory memory = {};

  // Prepares either: `algorithm` is as a user writes it, "ring:lanes=2" or "library". Throws a usage Error for an
  // algorithm that does not exist or is impossible here.
  Prepared prepare(const collectives::Operation& operation, std::string_view algorithm) const;
};

struct BackendOptions {
  int num_ranks = 1;          // under mpirun: the number of processes times ranks_per_process
  int ranks_per_process = 1;  // under mpirun: threads of each process that are ranks
  core::Sharing sharing = core::Sharing::threads;
  std::optional<transports::LinkSpec> link;
  std::chrono::milliseconds timeout{60'000};  // deadline of every wait
  std::size_t memory_bytes_per_rank = 0;      // bytes that the body will allocate on its device
  transports::MpiWorld* mpi = nullptr;        // set in a program started by mpirun
  // nccl: how the endpoint's buffers are registered
  libraries::NcclRegistration registration = libraries::NcclRegistration::none;
  libraries::NcclConfig nccl_config = {};  // configuration of NCCL's communicators
  bool null_stream = false;                // ranks on GPUs use CUDA's NULL stream instead of a stream of their own
  bool watches_memory = false;             // fill in Endpoint::memory
  std::string_view protocol = "auto";      // cuda: auto, simple, or packets for plans that can be run with it
  int most_blocks = 0;                     // cuda: most thread blocks of a rank's kernel; 0: blocks_of_a_rank()
};

// State that all endpoints of a rank on a GPU share. They share the stream, so that kernels of two endpoints never run
// at the same time.
struct RankGpu {
  std::unique_ptr<core::Device> device;
  std::unique_ptr<core::Stream> stream;
};

// A rank's membership in a backend on GPUs, for its lifetime.
class GpuMember {
 public:
  virtual ~GpuMember() = default;
  virtual Endpoint& endpoint() = 0;
  // Collective: all ranks call it together at the end of the body, unless one has failed.
  virtual void leave() {}
};

struct Backend {
  std::string_view name;
  std::string_view executor;  // name of what runs its plans, as in Prepared; empty: the backend runs no plans
  bool has_library;           // has an algorithm kLibrary
  std::optional<std::string> (*absence)();  // why it cannot be used here: "not built in: ..."; nothing if it can
  // Runs body on every rank of this process; core::run_ranks documents how failures are reported. nullptr: use open()
  // and join().
  void (*run)(const BackendOptions&, const std::function<void(Endpoint&)>& body);
  // GPUs that this process sees, if ranks run on GPUs (places.h); nullptr: ranks run on the CPU.
  std::vector<core::CudaDeviceInfo> (*gpus)() = nullptr;
  std::size_t (*free_bytes)(int device) = nullptr;  // free memory of such a GPU; other programs may use some too
  // For backends on GPUs. Collective: all ranks call each together; the first backend's open() serves all that a rank
  // joins.
  RankGpu (*open)(transports::World&, const BackendOptions&) = nullptr;
  std::unique_ptr<GpuMember> (*join)(transports::World&, RankGpu&, const BackendOptions&) = nullptr;
  bool has_plans() const { return !executor.empty(); }
  // On nccl, an unnamed algorithm means NCCL's own collectives; on mpi it means ours, and MPI's are for comparison.
  bool auto_is_library() const { return has_library && on_gpus(); }
  bool on_gpus() const { return gpus != nullptr; }
};

// Free memory of this rank's GPU while no rank allocates or frees. Collective: all ranks call it together.
std::size_t free_bytes_at_rest(const Backend& backend, const core::Device& device, transports::World& world);

std::span<const Backend> all_backends();
bool is_backend(std::string_view name);
const Backend& find_backend(std::string_view name);  // throws a usage Error that lists the names

// Runs body on every rank of this process, with an endpoint of each backend, in their order. More than one must be on
// GPUs: they share the rank's world, device and stream. No rank may have work in flight in one endpoint when another
// rank starts work in another: all ranks meet in between (finish(), then a barrier), as the kernels of each wait for
// kernels of other ranks, which may share the GPU.
using EndpointsBody = std::function<void(std::span<Endpoint* const>)>;
void run_together(std::span<const Backend* const> backends, const BackendOptions& options, const EndpointsBody& body);

// Names of the backend's algorithms for a collective that are possible at this number of ranks.
std::vector<std::string> algorithm_names(const Backend& backend, collectives::Kind kind, int num_ranks);

// Bytes that a prepared collective sends each time it runs.

// Bytes sent by `member`, counted in the plan that runs. A library's collective (NCCL's) has no plan to count: -1.
std::int64_t sent_bytes(const Prepared& prepared, const collectives::Operation& operation, int member);

}  // namespace lockstep::backends
