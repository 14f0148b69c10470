// A whole sweep: plans every transport and number of ranks that the flags name (plan.h), runs them (session.h), and
// shows and records the results (sinks.h).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "bench/sweep/flags.h"
#include "bench/sweep/sinks.h"
#include "collectives/tuning/tuning.h"

namespace lockstep::transports {
class MpiWorld;
}

namespace lockstep::sweep {

// Settings that are not flags; read once, at the start.
struct SweepEnvironment {
  std::optional<double> min_busbw_gbps;  // NCCL_TESTS_MIN_BW
  tuning::Table tuning;                  // empty if this machine has none
  std::string tuning_note;               // for the heading: the table that `auto` reads
  // Replaced by tests.
  std::function<const backends::Backend&(std::string_view name)> find_backend = backends::find_backend;
  std::function<core::SteadyClocks::Look(const std::vector<core::CudaDeviceInfo>&)> watch = core::watch_of;
};
SweepEnvironment read_environment(const SweepFlags& flags);

// Returns the exit status: 0, or core::Failure::wrong_data if a row was wrong or the bandwidth below the minimum.
// Throws Error for everything else; results measured before it have been printed and recorded. `mpi` is the world of a
// program under mpirun, else nullptr.
int run_sweep(const SweepFlags& flags, const SweepEnvironment& environment, transports::MpiWorld* mpi,
              const SweepOutput& output);

}  // namespace lockstep::sweep
