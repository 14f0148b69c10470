// First step of a sweep: lists the sessions to run, and refuses what cannot run. Nothing is timed here.
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
  Backends backends;  // more than one only if they share their ranks (backends::run_together)
  int num_ranks;
  double time_budget_s;  // time budget of this session; 0: none
  std::vector<collectives::Operation> operations;
  std::vector<std::vector<Contender>> contenders;  // [operation]
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
}  // namespace lockstep::sweep
