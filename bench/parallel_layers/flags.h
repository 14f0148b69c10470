// The command line of tp_linear_bench.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "bench/parallel_layers/shape.h"
#include "bench/place/place.h"
#include "bench/program/command_line.h"
#include "bench/program/program.h"
#include "collectives/transports/paced_link.h"
#include "workload/grid_product.h"

namespace lockstep::layer_bench {

struct LayerFlags : program::Invocation {
  std::vector<BlockKind> blocks;  // all, if none is given
  std::vector<int> ranks{2};
  std::vector<workload::Grid> grids;  // with them alone: `ranks` is empty
  std::vector<int> sequence_parallel{0, 1};
  std::vector<int> tiles{1, 4};
  Shape shape;
  std::string algorithm = "ring";
  std::optional<transports::LinkSpec> link;
  int threads = 1;
  int turns = 11;
  int warm_turns = 2;
  std::chrono::milliseconds timeout{60'000};
  program::PlaceFlags place;
  transports::MpiWorld* mpi = nullptr;  // --transport mpi, once it is started
  bool all_ranks = true;                // of mpirun, in place of a number of ranks that was given
  bool serve = false;                   // be a worker (bench/serve/orders.h) for one layer, in place of measuring
};

std::string name_of(BlockKind kind);  // "cross-entropy"

// Throws a usage Error: one line that names the flag, its value and what is allowed.
LayerFlags parse_layer_flags(int argc, const char* const* argv);

// One layer on `ranks` ranks; its numbers of tiles are timed together, one after the other in each round.
struct Case {
  BlockKind block = BlockKind::column;
  int ranks = 2;
  bool sequence_parallel = false;
  std::vector<int> tiles;                   // the first is 1
  std::optional<workload::Grid> grid = {};  // of the ranks; none: they are in a row
};
std::vector<Case> cases_of(const LayerFlags& flags);
int most_ranks(const LayerFlags& flags);  // of all cases

// Throws a usage Error where a case is not possible. The memory is checked only where all ranks are on this host's CPU:
// not under mpirun, and not on GPUs.
void check_cases(const LayerFlags& flags);

}  // namespace lockstep::layer_bench
