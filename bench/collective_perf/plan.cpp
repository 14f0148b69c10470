#include "bench/collective_perf/plan.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "bench/collective_perf/flags.h"
#include "bench/collective_perf/session.h"
#include "bench/collective_perf/trial.h"
#include "collectives/algorithms/algorithm.h"
#include "collectives/libraries/nccl_library.h"
#include "collectives/libraries/nccl_member.h"
#include "collectives/transports/mpi_transport.h"
#include "core/device.h"
#include "core/error.h"
#include "core/index.h"
#include "core/options.h"
#include "core/random.h"

namespace lockstep::sweep {

using collectives::Kind;
using collectives::Operation;

namespace {

bool can_run(const backends::Backend& backend, const std::string& algorithm) {
  if (algorithm == "all" || algorithm == "auto") return true;
  return backends::asks_library(algorithm) ? backend.has_library : backend.has_plans();
}

core::Error refused(const std::string& algorithm, const backends::Backend& backend) {
  const char* const what = backends::asks_library(algorithm) ? "plans only; allowed: all, auto, or an algorithm's name"
                                                             : "its library's own collectives only; allowed: library";
  return core::usage_error("--algo " + algorithm + ": the transport " + std::string(backend.name) + " runs " + what);
}

std::string automatic_choice(const backends::Backend& backend, const Operation& operation, int num_ranks,
                             const tuning::Table& table) {
  if (backend.auto_is_library() || !backend.has_plans()) return std::string(backends::kLibrary);
  const tuning::Query query{backend.name, operation.kind, num_ranks, row_bytes(operation, num_ranks)};
  return tuning::measured_choice(table, query).value_or(tuning::rule_of_thumb(query));
}

// Algorithms that the flags name and this backend runs, each once.
std::vector<std::string> algorithms_of(const SweepFlags& flags, const backends::Backend& backend,
                                       const Operation& operation, int num_ranks, const tuning::Table& table) {
  std::vector<std::string> names;
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& wanted : flags.algorithms) {
    if (wanted == "all") {
      for (const std::string& name : backends::algorithm_names(backend, operation.kind, num_ranks)) add(name);
    } else if (wanted == "auto") {
      add(automatic_choice(backend, operation, num_ranks, table));
    } else if (can_run(backend, wanted)) {
      add(wanted);
    }
  }
  return names;
}

}  // namespace

std::vector<Operation> operations_of(const SweepFlags& flags, int num_ranks) {
  const double spread = flags.kind == Kind::all_to_all_v ? alltoallv_spread_of_environment() : 0;
  std::vector<Operation> operations;
  for (core::DType dtype : flags.dtypes) {
    for (core::ReduceOp op : flags.ops) {
      for (int root : roots_at(flags, num_ranks)) {
        for (std::int64_t size_bytes : sizes_of(flags.sizes)) {
          Operation operation;
          operation.kind = flags.kind;
          operation.count = block_count(flags.kind, size_bytes, dtype, num_ranks);
          operation.dtype = dtype;
          operation.op = op;
          operation.root = root;
          if (flags.kind == Kind::all_to_all_v) {
            operation.matrix = uneven_counts(operation.count, num_ranks, spread, flags.seed);
          }
          operations.push_back(std::move(operation));
        }
      }
    }
  }
  return operations;
}

void check_algorithms(const SweepFlags& flags, const Backends& backends, int num_ranks, const Choices& choices) {
  for (const std::string& name : flags.algorithms) {
    if (std::none_of(backends.begin(), backends.end(), [&](const auto* one) { return can_run(*one, name); })) {
      throw refused(name, *backends.front());
    }
    if (name == "all" || name == "auto" || backends::asks_library(name)) continue;
    const algorithms::Choice choice = algorithms::parse_choice(flags.kind, name);
    if (const auto why = algorithms::refusal(choice, num_ranks, 0)) {
      throw core::usage_error("--algo " + name + ": " + *why);
    }
  }
  for (const auto* backend : backends) {
    const auto& names = flags.algorithms;
    if (!choices.own_plans.empty() && backend->has_plans()) continue;
    if (std::none_of(names.begin(), names.end(), [&](const auto& name) { return can_run(*backend, name); })) {
      throw refused(names.front(), *backend);
    }
  }
}

collectives::Operation in_place(collectives::Operation operation) {
  operation.in_place = true;
  return operation;
}

bool has_in_place(Kind kind) {
  return kind != Kind::all_to_all_v;
}

double alltoallv_spread_of_environment() {
  const char* text = std::getenv("NCCL_TESTS_ALLTOALLV_SPREAD");  // NOLINT(concurrency-mt-unsafe): before any rank
  if (text == nullptr) return 1;
  return core::OptionText{"NCCL_TESTS_ALLTOALLV_SPREAD", text, '='}.number_from(0, 1);
}

std::shared_ptr<const collectives::CountMatrix> uneven_counts(std::int64_t mean_count, int num_ranks, double spread,
                                                              std::uint64_t seed) {
  auto matrix = std::make_shared<collectives::CountMatrix>();
  matrix->num_ranks = num_ranks;
  for (int from = 0; from < num_ranks; ++from) {
    for (int to = 0; to < num_ranks; ++to) {
      const std::uint64_t pair = static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(to);
      const double uniform = static_cast<double>(core::hash64(seed, pair) >> 11) * 0x1p-53;
      const double share = 1 + spread * (uniform - 0.5);
      matrix->counts.push_back(static_cast<std::int64_t>(static_cast<double>(mean_count) * share));
    }
  }
  return matrix;
}

std::vector<Candidate> candidates_for(const SweepFlags& flags, const Backends& backends, const Operation& operation,
                                      int num_ranks, const Choices& choices) {
  std::vector<Candidate> candidates;
  for (const auto* backend : backends) {
    for (const std::string& name : algorithms_of(flags, *backend, operation, num_ranks, choices.table)) {
      candidates.push_back({backend, name});
    }
    if (!backend->has_plans()) continue;
    for (const OwnPlan& plan : choices.own_plans) candidates.push_back({backend, plan->algorithm, plan});
  }
  return candidates;
}

backends::Prepared prepare(backends::Endpoint& endpoint, const Operation& operation, const Candidate& candidate) {
  if (candidate.own_plan) return endpoint.prepare_plan(operation, *candidate.own_plan);
  return endpoint.prepare(operation, candidate.algorithm);
}

namespace {

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
    session.candidates.push_back(candidates_for(flags, backends, operation, num_ranks, choices));
    if (flags.ranks_per_process() == 1) continue;  // else "all" has no library of processes
    std::erase_if(session.candidates.back(), [](const Candidate& candidate) {
      return is_library_of_processes(*candidate.backend, candidate.algorithm);
    });
  }
  return session;
}

void check_library(const SweepFlags& flags, const backends::Backend& backend) {
  if (flags.ranks_per_process() == 1) return;
  for (const std::string& algorithm : flags.algorithms) {
    if (!is_library_of_processes(backend, algorithm)) continue;
    throw core::usage_error(
        "--algo " + algorithm + " with -t times -g of " + std::to_string(flags.ranks_per_process()) +
        ": a process is one rank to MPI's own collectives; allowed: without -t and -g, and a process for each rank");
  }
}

// All ranks of --ranks belong to one process; each process of mpirun has -t times -g ranks. Each rank of -g has a GPU
// to itself.
void check_ranks(const SweepFlags& flags, const backends::Backend& backend, const transports::MpiWorld* mpi) {
  if (mpi != nullptr && flags.ranks_given && flags.threads == 0) {
    const std::string processes = std::to_string(mpi->placement().num_ranks);
    if (flags.ranks == std::vector{mpi->placement().num_ranks}) return;
    throw core::usage_error("--ranks: under mpirun each process is one rank, and there are " + processes +
                            "; allowed: " + processes + ", or -t for several ranks per process");
  }
  // Processes with one rank each may share GPUs, as ranks of --ranks may.
  if (!backend.on_gpus() || flags.threads == 0 || (mpi != nullptr && flags.ranks_per_process() == 1)) return;
  const auto gpus = static_cast<int>(backend.gpus().size());
  if (flags.ranks.front() <= gpus) return;
  throw core::usage_error("-t times -g is " + std::to_string(flags.ranks.front()) + " GPUs, and there are " +
                          std::to_string(gpus) + "; allowed: at most that many, or --ranks " +
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
  if (mpi != nullptr) ranks = {mpi->placement().num_ranks * flags.ranks_per_process()};
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
  return round_up(most, libraries::NcclBuffers::kPageBytes);
}

void check_memory(const SessionPlan& session, const transports::MpiWorld* mpi) {
  const auto ranks_here = static_cast<std::size_t>(
      mpi != nullptr ? mpi->placement().most_ranks_of_a_host * session.flags.ranks_per_process() : session.num_ranks);
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
