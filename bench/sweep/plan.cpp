#include "bench/sweep/plan.h"

#include <algorithm>
#include <optional>
#include <string>

#include "bench/sweep/explain.h"
#include "bench/sweep/own_plans.h"
#include "bench/sweep/places.h"
#include "bench/sweep/simulated.h"
#include "collectives/libraries/nccl_buffers.h"
#include "collectives/libraries/nccl_library.h"
#include "collectives/transports/mpi_transport.h"
#include "core/device_cpu.h"
#include "core/error.h"
#include "core/size.h"

namespace lockstep::sweep {
namespace {

using collectives::Operation;

// Groups transports into sessions: those on GPUs share one.
std::vector<Backends> backends_of_sessions(const std::vector<std::string>& transports, const FindBackend& find) {
  std::vector<Backends> sessions;
  std::optional<std::size_t> on_gpus;  // index of the session of the transports on GPUs
  for (const std::string& transport : transports) {
    const backends::Backend& backend = transport == kSimulated ? simulated_backend() : find(transport);
    if (backend.on_gpus() && on_gpus) {
      Backends& together = sessions[*on_gpus];
      if (std::find(together.begin(), together.end(), &backend) == together.end()) together.push_back(&backend);
      continue;
    }
    if (backend.on_gpus()) on_gpus = sessions.size();
    sessions.push_back({&backend});
  }
  return sessions;
}

// MPI's own collectives on the CPU, to which a process is one rank.
bool is_library_of_processes(const backends::Backend& backend, std::string_view algorithm) {
  return backends::asks_library(algorithm) && backend.has_library && !backend.on_gpus();
}

SessionPlan plan_session(const SweepFlags& flags, const Backends& backends, int num_ranks, const Choices& choices) {
  check_own_plans(flags, choices.own_plans, num_ranks);
  check_algorithms(flags, backends, num_ranks, choices);
  const auto shares = static_cast<double>(flags.transports.size() * flags.ranks.size());
  const double budget_s = flags.time_budget_s * static_cast<double>(backends.size()) / shares;
  SessionPlan session{flags, backends, num_ranks, budget_s, operations_of(flags, num_ranks), {}};
  for (const Operation& operation : session.operations) {
    session.contenders.push_back(contenders_for(flags, backends, operation, num_ranks, choices));
    if (flags.ranks_a_process() == 1) continue;  // else "all" has no library of processes
    std::erase_if(session.contenders.back(),
                  [](const Contender& one) { return is_library_of_processes(*one.backend, one.algorithm); });
  }
  return session;
}

void check_library(const SweepFlags& flags, const backends::Backend& backend) {
  if (flags.ranks_a_process() == 1) return;
  for (const std::string& algorithm : flags.algorithms) {
    if (!is_library_of_processes(backend, algorithm)) continue;
    throw core::usage_error(
        "--algo " + algorithm + " with -t times -g of " + std::to_string(flags.ranks_a_process()) +
        ": a process is one rank to MPI's own collectives; allowed: without -t and -g, and a process for each rank");
  }
}

// Ranks of --ranks belong to one process, those of -t times -g to each process of mpirun. Each rank of -g has a GPU of
// its own.
void check_ranks(const SweepFlags& flags, const backends::Backend& backend, const transports::MpiWorld* mpi) {
  if (mpi != nullptr && flags.ranks_given && flags.threads == 0) {
    const std::string processes = std::to_string(mpi->placement().num_ranks);
    if (flags.ranks == std::vector{mpi->placement().num_ranks}) return;
    throw core::usage_error("--ranks: under mpirun each process is one rank, and there are " + processes +
                            "; allowed: " + processes + ", or -t for several ranks a process");
  }
  // Processes with one rank each may share GPUs, as ranks of --ranks may.
  if (!backend.on_gpus() || flags.threads == 0 || (mpi != nullptr && flags.ranks_a_process() == 1)) return;
  const auto gpus = static_cast<int>(backend.gpus().size());
  if (flags.ranks.front() <= gpus) return;
  throw core::usage_error("-t times -g is " + std::to_string(flags.ranks.front()) + " GPUs, and there are " +
                          std::to_string(gpus) + "; allowed: at most so many, or --ranks " +
                          std::to_string(flags.ranks.front()) + ", which may share GPUs");
}

// Host memory per rank for copies of buffers, if the device's memory is not the host's.
std::size_t mirror_bytes(const SessionPlan& session) {
  std::size_t most = 0;
  for (const Operation& operation : session.operations) {
    most = std::max(most, call_bytes(operation, session.num_ranks, trial_options(session)));
  }
  return most;
}

}  // namespace

std::vector<SessionPlan> plan_sweep(const SweepFlags& flags, const FindBackend& find, const tuning::Table& table,
                                    const transports::MpiWorld* mpi) {
  std::vector<SessionPlan> sessions;
  const std::vector<OwnPlan> own_plans = read_own_plans(flags);
  std::vector<int> ranks = flags.ranks;
  if (!flags.ranks_given && !own_plans.empty()) ranks = {own_plans.front()->num_ranks};
  if (mpi != nullptr) ranks = {mpi->placement().num_ranks * flags.ranks_a_process()};
  for (const Backends& backends : backends_of_sessions(flags.transports, find)) {
    for (const auto* backend : backends) {
      if (const auto why = backend->absence()) {
        throw core::Error(core::Failure::not_built, "--transport " + std::string(backend->name) + ": " + *why);
      }
      check_ranks(flags, *backend, mpi);
      check_library(flags, *backend);
    }
    for (int num_ranks : ranks) sessions.push_back(plan_session(flags, backends, num_ranks, {table, own_plans}));
  }
  return sessions;
}

TrialOptions trial_options(const SessionPlan& session) {
  const SweepFlags& flags = session.flags;
  const bool graph = flags.device.graph_launches > 0;
  return {.seed = flags.seed,
          .check = flags.check,
          .unalign_elems = flags.unalign_elems,
          .iterations_per_sample = graph ? flags.iterations : 1,
          .calls_per_iteration = flags.calls_per_iteration,
          .batch_bytes = session.on_gpus() ? kGpuBatchBytes : kBatchBytes,
          .graph = graph,
          .blocking = flags.device.blocking};
}

std::size_t session_bytes(const SessionPlan& session) {
  const TrialOptions options = trial_options(session);
  std::size_t most =
      session.flags.explain && session.flags.link.empty() ? cost_model_pool_bytes(session.num_ranks, options) : 0;
  for (const Operation& operation : session.operations) {
    most = std::max(most, pool_bytes(operation, session.num_ranks, options));
    if (has_in_place(operation.kind)) {
      most = std::max(most, pool_bytes(in_place(operation), session.num_ranks, options));
    }
  }
  if (session.flags.device.registration == 0) return most;
  constexpr std::size_t kPage = libraries::NcclBuffers::kPageBytes;
  return (most + kPage - 1) / kPage * kPage;
}

void check_memory(const SessionPlan& session, const transports::MpiWorld* mpi) {
  const auto ranks_here = static_cast<std::size_t>(
      mpi != nullptr ? mpi->placement().most_ranks_of_a_host * session.flags.ranks_a_process() : session.num_ranks);
  if (session.on_gpus()) {
    check_gpu_memory(session.backends.front()->gpus(), static_cast<int>(ranks_here), session_bytes(session),
                     session.flags.sizes.max_bytes);
  }
  // The host of a rank on a GPU holds copies of one call's buffers.
  const std::size_t needed = (session.on_gpus() ? mirror_bytes(session) : session_bytes(session)) * ranks_here;
  const std::size_t available = core::available_host_bytes();
  if (needed <= available / 10 * 9) return;
  throw core::usage_error("-e,--maxbytes " + core::format_size(session.flags.sizes.max_bytes) + ": " +
                          std::to_string(ranks_here) + " ranks need " +
                          core::format_size(static_cast<std::int64_t>(needed)) +
                          " of memory here; available: " + core::format_size(static_cast<std::int64_t>(available)));
}

}  // namespace lockstep::sweep
