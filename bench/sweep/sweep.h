// A whole sweep: every transport and number of ranks that the flags name is planned (plan.h), run (session.h), and
// shown and recorded (sinks.h).
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

// What is not a flag; read once, at the start.
struct SweepEnvironment {
  std::optional<double> min_busbw_gbps;  // NCCL_TESTS_MIN_BW
  tuning::Table tuning;                  // empty if this machine has none
  std::string tuning_note;               // for the heading: where `auto` looks
  // Tests put theirs in its place.
  std::function<const backends::Backend&(std::string_view name)> find_backend = backends::find_backend;
};
SweepEnvironment read_environment(const SweepFlags& flags);

// Returns the exit status: 0, or core::Failure::wrong_data if a row was wrong or the bandwidth below the minimum.
// Throws Error for everything else; what was measured until then has been printed and recorded.
// `mpi` is the world of a program under mpirun, else nullptr.
int run_sweep(const SweepFlags& flags, const SweepEnvironment& environment, transports::MpiWorld* mpi,
              const SweepOutput& output);

}  // namespace lockstep::sweep
