// Flags of the benchmarks that time training steps: the model, its ranks, and how long to measure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/place/place.h"
#include "bench/program/command_line.h"
#include "bench/program/program.h"
#include "trainer/train/options.h"

namespace lockstep::parallel_bench {

inline constexpr int kMostReplicas = 64;

struct StepFlags : program::Invocation {
  std::string model = "micro";    // --model, and what other flags change of it
  trainer::TrainOptions options;  // but for what is swept
  std::vector<int> replicas{2};   // swept
  bool all_ranks = true;          // of mpirun, in place of a number of replicas that was given
  program::PlaceFlags place;
  std::int64_t turns = 10;      // at most: runs of each way that is timed
  std::int64_t warm_turns = 3;  // before the first that counts: kernels choose their implementation
  double budget_s = 30;         // of a row; 0: none
  bool serve = false;           // be a worker (bench/serve/orders.h) for one row, in place of measuring
};

void declare_step_flags(program::CommandLine& line, StepFlags& flags);
void read_step_flags(const program::CommandLine& line, StepFlags& flags);
void begin_step_flags(int argc, const char* const* argv, StepFlags& flags);

// In the world that --transport names; nullptr: none of MPI.
void place_in(transports::MpiWorld* mpi, StepFlags& flags);

}  // namespace lockstep::parallel_bench
