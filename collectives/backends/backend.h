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
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collective.h"
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

// What a rank gets.
struct Endpoint {
  transports::World& world;
  core::Device& device;
  core::Stream& stream;
  // `algorithm` as a user writes it: "ring:lanes=2", "library". All ranks prepare the same operations in the same
  // order. Throws a usage Error for what does not exist or is impossible.
  std::function<Prepared(const collectives::Operation&, std::string_view algorithm)> prepare;
  // Until what run() has enqueued on the stream is done; on the host it is done already.
  std::function<void()> finish = [] {};
  // To be called some time after finish(): throws Error where what is done has failed.
  std::function<void()> check = [] {};
};

struct BackendOptions {
  int num_ranks = 1;  // of mpi: must be 0 (as mpirun says) or what mpirun says
  core::Sharing sharing = core::Sharing::threads;
  std::optional<transports::LinkSpec> link;
  std::chrono::milliseconds timeout{60'000};  // of every wait
  std::size_t memory_bytes_per_rank = 0;      // that the body will allocate on its device
  transports::MpiWorld* mpi = nullptr;        // of a program started by mpirun
  std::string_view protocol = "auto";         // of cuda: or "simple", or "packets" for plans that can be run so
};

struct Backend {
  std::string_view name;
  std::string_view executor;                // of catalogue algorithms, as Prepared's; empty: it runs none
  bool has_library;                         // kLibrary
  std::optional<std::string> (*absence)();  // why it cannot be used here: "not built in: ..."; nothing if it can
  // Runs body on every rank of this process; see core::run_ranks for failures.
  void (*run)(const BackendOptions&, const std::function<void(Endpoint&)>& body);
  // Those that this process sees, if its ranks run on GPUs (gpu_places.h); nullptr: they run on the CPU.
  std::vector<core::CudaDeviceInfo> (*gpus)() = nullptr;
  bool has_plans() const { return !executor.empty(); }
  // Who names NCCL and no algorithm means NCCL's own collectives; MPI's are there to be compared with.
  bool auto_is_library() const { return has_library && on_gpus(); }
  bool on_gpus() const { return gpus != nullptr; }
};

std::span<const Backend> all_backends();
const Backend& find_backend(std::string_view name);  // throws a usage Error that lists what there is

// Names of all algorithms that the backend has for a collective, and that are possible at this number of ranks.
std::vector<std::string> algorithm_names(const Backend& backend, collectives::Kind kind, int num_ranks);

}  // namespace lockstep::backends
