// The first step of a sweep: what it will run, and what of that cannot be run. Nothing is timed here.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>
#include <vector>

#include "bench/sweep/cases.h"
#include "bench/sweep/trial.h"

namespace lockstep::transports {
class MpiWorld;
}

namespace lockstep::sweep {

struct SessionPlan {
  const SweepFlags& flags;
  Backends backends;  // several only if they share their ranks (backends::run_together)
  int num_ranks;
  double time_budget_s;  // of this session; 0: none
  std::vector<collectives::Operation> operations;
  std::vector<std::vector<Contender>> contenders;  // [operation]
  bool on_gpus() const { return backends.front()->on_gpus(); }
};

using FindBackend = std::function<const backends::Backend&(std::string_view name)>;

// All sessions of the flags: each number of ranks on each transport; transports on GPUs share theirs. Everything that
// can be refused is refused here, alike on all ranks. `mpi`: nullptr but under mpirun.
std::vector<SessionPlan> plan_sweep(const SweepFlags& flags, const FindBackend& find, const tuning::Table& table,
                                    const transports::MpiWorld* mpi);

// Throws a usage Error if the session's memory is not there. Before anything is allocated; what the caches of the
// system hold can be given up.
void check_memory(const SessionPlan& session, const transports::MpiWorld* mpi);

TrialOptions trial_options(const SessionPlan& session);
// Device memory that a rank of the session needs.
std::size_t session_bytes(const SessionPlan& session);
}  // namespace lockstep::sweep
