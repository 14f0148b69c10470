// tp_linear_bench: its flags and its rows, which are timed and checked against one rank alone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/step/part.h"
#include "bench/tp_linear_bench/layer.h"
#include "collectives/transports/paced_link.h"
#include "workload/grid_product.h"

namespace lockstep::tp_linear {

// The command line of tp_linear_bench.

struct TpLinearFlags : step_bench::PartFlags {
  std::vector<Block> blocks;  // all, if none is given
  std::vector<int> ranks{2};
  std::vector<workload::Grid> grids;  // if any are given, only they are timed: `ranks` is empty
  std::vector<int> sequence_parallel{0, 1};
  std::vector<int> tiles{1, 4};
  Shape shape;
  std::string algorithm = "ring";
};

std::string name_of(Block kind);  // "cross-entropy"

// Throws a usage Error: one line that names the flag, its value and what is allowed.
TpLinearFlags parse_tp_linear_flags(int argc, const char* const* argv);

// One layer on `ranks` ranks; its numbers of tiles are timed together, sequentially in each round.
struct Case {
  Block block = Block::up;
  int ranks = 2;
  bool sequence_parallel = false;
  std::vector<int> tiles;                   // the first is 1
  std::optional<workload::Grid> grid = {};  // grid of the ranks, if there is one
};
std::vector<Case> cases_of(const TpLinearFlags& flags);
TpLayer layer_of(const Case& bench_case, const Shape& shape, int tiles, int rank);
int most_ranks(const TpLinearFlags& flags);  // over all cases

// Throws a usage Error if a case is impossible. Memory is checked only if all ranks are on this host's CPU, not under
// mpirun or on GPUs.
void check_cases(const TpLinearFlags& flags);

// Checks a rank's results against one rank alone.

using Reference = std::map<std::string, std::vector<float>>;  // whole tensors, by name

// All results of a case's layer on one rank that has the whole layer. Layers for grids have no biases.
Reference reference_of(const Case& bench_case, const Shape& shape, int threads);

// Largest allowed difference of results on `ranks` ranks from one rank's, relative to the largest element:
// tolerance(f32, n) + tolerance(dtype, ranks + 2 r) with core::sum_tolerance, for n terms in the longest sum, which is
// in another order, `ranks` terms that are summed in the dtype, and r roundings to it before, on either side.
double allowed_difference(Block kind, const Shape& shape, int ranks);

// Number of elements of a share whose difference is larger, NaN included. Padding must be zero.
std::int64_t wrong_elems(const Result& result, const std::vector<float>& whole, double allowed);

// Number of elements whose bits differ. Both have equal length.
std::int64_t unlike_elems(const std::vector<float>& found, const std::vector<float>& wanted);

// Runs one layer on its ranks: timed in all ways in every round, and checked in every round.

// A result for each number of tiles, which is a row of the table. Under mpirun all ranks call it, and all have
// them.
std::vector<step_bench::PartResult> run_case(const TpLinearFlags& flags, const Case& bench_case,
                                             const Reference& reference);

// Serves the layer as a worker instead of measuring it: forward and backward with each number of tiles, one task after
// the other and with overlapped exchanges.
void serve_case(const TpLinearFlags& flags, const Case& bench_case);

}  // namespace lockstep::tp_linear
