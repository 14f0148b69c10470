// The command line of tp_linear_bench.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bench/place/place.h"
#include "bench/program/command_line.h"
#include "bench/program/program.h"
#include "bench/tp_linear/shape.h"
#include "collectives/transports/paced_link.h"
#include "workload/grid_product.h"

namespace lockstep::tp_linear {

struct TpLinearFlags : program::Invocation {
  std::vector<BlockKind> blocks;  // all, if none is given
  std::vector<int> ranks{2};
  std::vector<workload::Grid> grids;  // if any are given, only they are timed: `ranks` is empty
  std::vector<int> sequence_parallel{0, 1};
  std::vector<int> tiles{1, 4};
  Shape shape;
  std::string algorithm = "ring";
  std::optional<transports::LinkSpec> link;
  int threads = 1;
  int rounds = 11;
  int warmup_rounds = 2;
  std::chrono::milliseconds timeout{60'000};
  program::PlaceFlags place;
  transports::MpiWorld* mpi = nullptr;  // --transport mpi, once it is initialised
  bool all_ranks = true;                // true: all ranks of mpirun; false: the number given by --tp
  bool serve = false;                   // be a worker for one layer (bench/serve/orders.h) instead of measuring
};

std::string name_of(BlockKind kind);  // "cross-entropy"

// Throws a usage Error: one line that names the flag, its value and what is allowed.
TpLinearFlags parse_tp_linear_flags(int argc, const char* const* argv);

// One layer on `ranks` ranks; its numbers of tiles are timed together, one after the other in each round.
struct Case {
  BlockKind block = BlockKind::column;
  int ranks = 2;
  bool sequence_parallel = false;
  std::vector<int> tiles;                   // the first is 1
  std::optional<workload::Grid> grid = {};  // grid of the ranks, if there is one
};
std::vector<Case> cases_of(const TpLinearFlags& flags);
int most_ranks(const TpLinearFlags& flags);  // over all cases

// Throws a usage Error if a case is impossible. Memory is checked only if all ranks are on this host's CPU, not under
// mpirun or on GPUs.
void check_cases(const TpLinearFlags& flags);

}  // namespace lockstep::tp_linear
