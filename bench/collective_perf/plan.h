// First step of a sweep: the rows that its flags name, with the plans that run.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/collective_perf/flags.h"
#include "bench/collective_perf/trial.h"
#include "collectives/backends/backend.h"
#include "collectives/tuning/tuning.h"

namespace lockstep::sweep {

// Rows of a sweep: every operation that its flags name, and every algorithm of an operation.

// Out of place; in nccl-tests' order: types, operations, roots, sizes.
std::vector<collectives::Operation> operations_of(const SweepFlags& flags, int num_ranks);

// Backends of a session.
using Backends = std::vector<const backends::Backend*>;

// A user's own plan, proved by the checker. Its rows have the algorithm "plan:NAME".
using OwnPlan = std::shared_ptr<const plan::Plan>;

// Tables in which algorithm names are looked up, and the user's additional plans.
struct Choices {
  const tuning::Table& table;
  const std::vector<OwnPlan>& own_plans;
};

// Throws a usage Error for an algorithm that the collective does not have, that none of the backends can run, or that
// is impossible at this number of ranks; and for a backend that has none of those that are wanted.
void check_algorithms(const SweepFlags& flags, const Backends& backends, int num_ranks, const Choices& choices);

collectives::Operation in_place(collectives::Operation operation);
bool has_in_place(collectives::Kind kind);  // false if input and output blocks differ in size

// Unevenness of an all_to_all_v: each pair's count is drawn from (seed, from, to), uniformly in [1 - spread / 2, 1 +
// spread / 2] times the mean. Reads NCCL_TESTS_ALLTOALLV_SPREAD, 0 to 1, default 1; call it once.
double alltoallv_spread_of_environment();
std::shared_ptr<const collectives::CountMatrix> uneven_counts(std::int64_t mean_count, int num_ranks, double spread,
                                                              std::uint64_t seed);

// An algorithm on a backend.
struct Candidate {
  const backends::Backend* backend;
  std::string algorithm;
  OwnPlan own_plan = nullptr;  // set if the algorithm is "plan:NAME"
};

// Algorithms to run for one operation: `all` and `auto` are replaced by the names that they mean, each once, for each
// backend that can run them; then come the user's own plans.
std::vector<Candidate> candidates_for(const SweepFlags& flags, const Backends& backends,
                                      const collectives::Operation& operation, int num_ranks, const Choices& choices);

// Collective: all ranks call it together.
backends::Prepared prepare(backends::Endpoint& endpoint, const collectives::Operation& operation,
                           const Candidate& candidate);

}  // namespace lockstep::sweep

// First step of a sweep: lists the sessions to run, and refuses what cannot run. Nothing is timed here.
namespace lockstep::transports {

class MpiWorld;
}

namespace lockstep::sweep {

struct SessionPlan {
  const SweepFlags& flags;
  Backends backends;  // more than one only if they share their ranks (backends::run_together)
  int num_ranks;
  double time_budget_s;  // time budget of this session; 0: none
  std::vector<collectives::Operation> operations;
  std::vector<std::vector<Candidate>> candidates;  // [operation]
  bool on_gpus() const { return backends.front()->on_gpus(); }
};

using FindBackend = std::function<const backends::Backend&(std::string_view name)>;

// All sessions that the flags ask for: each number of ranks on each transport; transports on GPUs share a session.
// Everything that can be refused is refused here, equally on all ranks. `mpi` is nullptr unless under mpirun.
std::vector<SessionPlan> plan_sweep(const SweepFlags& flags, const FindBackend& find, const tuning::Table& table,
                                    const transports::MpiWorld* mpi);

// Throws a usage Error if the host has too little memory for the session. Call it before anything is allocated; memory
// that the system's caches hold counts as available.
void check_memory(const SessionPlan& session, const transports::MpiWorld* mpi);

TrialOptions trial_options(const SessionPlan& session);
// Bytes of device memory per rank of the session.
std::size_t session_bytes(const SessionPlan& session);

// Plans as text in a sweep (docs/plan_format.md): --plan reads the user's own, --print-plan and --draw show those that
// would run.

// Reads the plans of the files that the flags name; the checker proves each. Throws a usage Error that names the file,
// line and step, what is wrong and what is allowed.
std::vector<OwnPlan> read_own_plans(const SweepFlags& flags);

// Throws a usage Error if a plan is for another number of ranks, or for another root than the flags ask for.
void check_own_plans(const SweepFlags& flags, const std::vector<OwnPlan>& plans, int num_ranks);

// Plans that the sessions would run, each once: as text that --plan reads, as a drawing, or both.
std::string plans_text(const SweepFlags& flags, const std::vector<SessionPlan>& sessions);

}  // namespace lockstep::sweep
