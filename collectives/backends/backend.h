// Backends: the ways in which ranks come to be and collectives are run, behind one door. A sweep, a test or a trainer
// names a backend and an algorithm, and sees no difference.
//
//   local   ranks of this machine over shared memory; plans by the direct executor; emulated links if wanted
//   mpi     ranks of mpirun; plans by the message executor, and "library": MPI's own collectives
//   cuda    ranks on GPUs, several may share one, threads or those of mpirun on one host; plans by the CUDA executor
//   nccl    one GPU a rank, ranks are threads or those of mpirun; "library": NCCL's own collectives
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"
#include "collectives/transports/paced_link.h"
#include "collectives/transports/world.h"
#include "core/device.h"
#include "core/shared_memory.h"

namespace lockstep::transports {
class MpiWorld;
}

namespace lockstep::backends {

// The algorithm name by which a vendor's own collective is asked for.
inline constexpr std::string_view kLibrary = "library";

// One rank's side of an operation, ready to run.
struct Prepared {
  std::unique_ptr<collectives::Collective> collective;
  std::string algorithm;           // label: "ring:lanes=2", "library"
  std::string executor;            // "direct", "message", "library"
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
};

struct BackendOptions {
  int num_ranks = 1;  // of mpi: must be 0 (as mpirun says) or what mpirun says
  core::Sharing sharing = core::Sharing::threads;
  std::optional<transports::LinkSpec> link;
  std::chrono::milliseconds timeout{60'000};  // of every wait
  std::size_t memory_bytes_per_rank = 0;      // that the body will allocate on its device
  transports::MpiWorld* mpi = nullptr;        // of a program started by mpirun
};

struct Backend {
  std::string_view name;
  std::string_view executor;                // of catalogue algorithms, as Prepared's; empty: it runs none
  bool has_library;                         // kLibrary
  std::optional<std::string> (*absence)();  // why it cannot be used here: "not built in: ..."; nothing if it can
  // Runs body on every rank of this process; see core::run_ranks for failures.
  void (*run)(const BackendOptions&, const std::function<void(Endpoint&)>& body);
  bool has_plans() const { return !executor.empty(); }
};

std::span<const Backend> all_backends();
const Backend& find_backend(std::string_view name);  // throws a usage Error that lists what there is

// Names of all algorithms that the backend has for a collective, and that are possible at this number of ranks.
std::vector<std::string> algorithm_names(const Backend& backend, collectives::Kind kind, int num_ranks);

}  // namespace lockstep::backends
