// Backends: the ways in which ranks come to be and collectives are run, behind one door. A sweep, a test or a trainer
// names a backend and an algorithm, and sees no difference.
//
//   local   ranks of this machine over shared memory; plans by the direct executor; emulated links if wanted
//   mpi     ranks of mpirun; plans by the message executor, and "library": MPI's own collectives
//   cuda    ranks on GPUs, several may share one, threads or those of mpirun on one host; plans by the CUDA executor
//   nccl    one GPU a rank, ranks are threads or those of mpirun; plans by groups of NCCL's sends and receives, and
//           "library": NCCL's own collectives, also as "library:algo=ring:proto=ll128" (libraries/nccl_choice.h)
#pragma once

#include <chrono>
#include <cstddef>
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
#include "collectives/transports/world.h"
#include "core/device.h"
#include "core/device_cuda.h"
#include "core/shared_memory.h"

namespace lockstep::transports {
class MpiWorld;
}

namespace lockstep::backends {

// The algorithm name by which a vendor's own collective is asked for.
inline constexpr std::string_view kLibrary = "library";
// Also with options: "library:algo=ring".
inline bool asks_library(std::string_view algorithm) {
  return algorithm == kLibrary || algorithm.starts_with("library:");
}

// One rank's side of an operation, ready to run.
struct Prepared {
  std::unique_ptr<collectives::Collective> collective;
  std::string algorithm;           // label: "ring:lanes=2", "library"
  std::string executor;            // "direct", "message", "cuda", "nccl", "library"
  std::optional<plan::Plan> plan;  // what it runs, if it runs a plan
};

// The resources of a rank.
struct Endpoint {
  transports::World& world;
  core::Device& device;
  core::Stream& stream;
  // All ranks prepare the same operations in the same order; a plan has passed the checker (plan/check.h).
  std::function<Prepared(const collectives::Operation&, plan::Plan)> prepare_plan;
  // The vendor's own collective, as a user asks for it: "library:algo=ring". Nothing where the backend has none.
  std::function<Prepared(const collectives::Operation&, std::string_view asked)> prepare_library = nullptr;
  // Until what run() has enqueued on the stream is done; on the host it is done already.
  std::function<void()> finish = [] {};
  // To be called some time after finish(): throws Error where what is done has failed.
  std::function<void()> check = [] {};
  // Memory for inputs and outputs, where it has to be other than what the device allocates. As much on every rank.
  struct Buffers {
    std::function<void*(std::size_t size_bytes)> allocate;
    std::function<void(void*)> release;
  };
  std::optional<Buffers> buffers = std::nullopt;

  // Either of the two: `algorithm` as a user writes it, "ring:lanes=2" or "library". Throws a usage Error for what does
  // not exist or is impossible.
  Prepared prepare(const collectives::Operation& operation, std::string_view algorithm) const;
};

struct BackendOptions {
  int num_ranks = 1;  // of mpi: must be 0 (as mpirun says) or what mpirun says
  core::Sharing sharing = core::Sharing::threads;
  std::optional<transports::LinkSpec> link;
  std::chrono::milliseconds timeout{60'000};  // of every wait
  std::size_t memory_bytes_per_rank = 0;      // that the body will allocate on its device
  transports::MpiWorld* mpi = nullptr;        // of a program started by mpirun
  // The endpoint's buffers, with nccl.
  libraries::NcclRegistration registration = libraries::NcclRegistration::none;
  std::string_view protocol = "auto";  // of cuda: or "simple", "packets" for plans that can be run so
  int most_blocks = 0;                 // of cuda: thread blocks of a rank's kernel; 0: blocks_of_a_rank()
};

// State that all endpoints of a rank on a GPU share: work in one stream never has the kernels of another beside its
// own.
struct RankGpu {
  std::unique_ptr<core::Device> device;
  std::unique_ptr<core::Stream> stream;
};

// A rank's membership in a backend on GPUs, as long as it lives.
class GpuMember {
 public:
  virtual ~GpuMember() = default;
  virtual Endpoint& endpoint() = 0;
  // All ranks together, when the body has come to its end and not failed.
  virtual void leave() {}
};

struct Backend {
  std::string_view name;
  std::string_view executor;                // of catalogue algorithms, as Prepared's; empty: it runs none
  bool has_library;                         // kLibrary
  std::optional<std::string> (*absence)();  // why it cannot be used here: "not built in: ..."; nothing if it can
  // Runs body on every rank of this process; see core::run_ranks for failures. nullptr: by open() and join().
  void (*run)(const BackendOptions&, const std::function<void(Endpoint&)>& body);
  // Those that this process sees, if its ranks run on GPUs (places.h); nullptr: they run on the CPU.
  std::vector<core::CudaDeviceInfo> (*gpus)() = nullptr;
  // For backends on GPUs. All ranks call both together; open() of the first backend is for all that a rank joins.
  RankGpu (*open)(transports::World&, const BackendOptions&) = nullptr;
  std::unique_ptr<GpuMember> (*join)(transports::World&, RankGpu&, const BackendOptions&) = nullptr;
  bool has_plans() const { return !executor.empty(); }
  // NCCL without an algorithm means NCCL's own collectives; MPI's are there to be compared with.
  bool auto_is_library() const { return has_library && on_gpus(); }
  bool on_gpus() const { return gpus != nullptr; }
};

std::span<const Backend> all_backends();
bool is_backend(std::string_view name);
const Backend& find_backend(std::string_view name);  // throws a usage Error that lists what there is

// Runs body on every rank of this process, with an endpoint of each backend, in their order. Several must be on GPUs:
// they share the rank's world, device and stream. Nobody may have work under way in one endpoint when it begins some in
// another: all ranks meet between (finish(), then a barrier), as kernels of either wait for those of other ranks, which
// may share the GPU.
using EndpointsBody = std::function<void(std::span<Endpoint* const>)>;
void run_together(std::span<const Backend* const> backends, const BackendOptions& options, const EndpointsBody& body);

// Names of all algorithms that the backend has for a collective, and that are possible at this number of ranks.
std::vector<std::string> algorithm_names(const Backend& backend, collectives::Kind kind, int num_ranks);

}  // namespace lockstep::backends
