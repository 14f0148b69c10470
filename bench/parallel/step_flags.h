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
  std::string model = "micro";    // --model; other flags change parts of it
  trainer::TrainOptions options;  // all options but those that are swept
  std::vector<int> replicas{2};   // swept
  bool all_ranks = true;          // true: all ranks of mpirun; false: the number given by --dp
  program::PlaceFlags place;
  std::int64_t turns = 10;      // maximum number of timed runs of each way
  std::int64_t warm_turns = 3;  // untimed runs before them, in which kernels choose their implementation
  double budget_s = 30;         // per row; 0: no limit
  bool serve = false;           // be a worker for one row (bench/serve/orders.h) instead of measuring
};

void declare_step_flags(program::CommandLine& line, StepFlags& flags);
void read_step_flags(const program::CommandLine& line, StepFlags& flags);
void begin_step_flags(int argc, const char* const* argv, StepFlags& flags);

// Sets the ranks up in the world that --transport names; nullptr: without MPI.
void place_in(transports::MpiWorld* mpi, StepFlags& flags);

}  // namespace lockstep::parallel_bench
