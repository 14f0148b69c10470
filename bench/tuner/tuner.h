// Measures every algorithm at every size and keeps the fastest in a tuning table.
#pragma once

#include <string>
#include <vector>

#include "collectives/collective.h"
#include "collectives/tuning/tuning.h"

namespace lockstep::transports {
class MpiWorld;
}

namespace lockstep::tuner {

struct TunerOptions {
  std::string transport = "local";
  std::vector<collectives::Kind> kinds;
  std::string ranks = "2,4,8";    // as --ranks of the sweeps; under MPI it is mpirun's number
  std::string min_bytes = "8";    // as -b
  std::string max_bytes = "16M";  // as -e
  int step_factor = 2;            // as -f
  double time_budget_s = 120;     // of all
  std::string path;               // of the table
};

// Measures, then replaces the entries of the same transport, collectives and numbers of ranks in the table at `path`,
// if it is of this machine, or begins a new one. Prints a line a measured size. Returns the exit status.
int tune(const TunerOptions& options, transports::MpiWorld* mpi);

}  // namespace lockstep::tuner
