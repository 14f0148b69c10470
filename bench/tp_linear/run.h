// One row of tp_linear_bench: timed, and checked against one rank alone.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/tp_linear/flags.h"
#include "bench/tp_linear/nodes.h"
#include "bench/tp_linear/pass.h"
#include "bench/tp_linear/shape.h"
#include "core/record.h"
#include "core/statistics.h"

namespace lockstep::tp_linear {

// Checks a rank's results against those of one rank alone.

using Reference = std::map<std::string, std::vector<float>>;  // whole tensors, by name

// All results of the layer on one rank that has all of it.
Reference reference_of(BlockKind kind, const Shape& shape, int threads);
// The same for the layer that grids share: without biases.
Reference grid_reference_of(BlockKind kind, const Shape& shape, int threads);

// Largest allowed difference of results on `ranks` ranks from one rank's, relative to the largest element:
// tolerance(f32, n) + tolerance(dtype, ranks + 2 r) with core::sum_tolerance, for n terms in the longest sum, which is
// in another order, `ranks` terms that are summed in the dtype, and r roundings to it before, on either side.
double allowed_difference(BlockKind kind, const Shape& shape, int ranks);

// Number of elements of a share whose difference is larger, NaN included. Padding must be zero.
std::int64_t wrong_elems(const Result& result, workload::TensorPlace place, const std::vector<float>& found,
                         const std::vector<float>& whole, double allowed);

// Number of elements whose bits differ. Both have equal length.
std::int64_t unlike_elems(const std::vector<float>& found, const std::vector<float>& wanted);

// Runs one layer on its ranks: timed in all ways in every round, and checked in every round.

// Results for one number of tiles: one row of the table.
struct Form {
  int tiles = 1;
  // [way][direction], the slowest rank's time in each round.
  std::array<std::array<std::vector<double>, 2>, kNumWays> samples_us = {};
  std::array<std::array<std::vector<Spent>, 2>, kNumWays> spent_us = {};  // likewise
  std::int64_t wrong = 0;                                                 // elements, over all ranks and rounds
  std::int64_t unlike = 0;              // elements whose bits differ from one tile, one task after the other
  std::int64_t sent_bytes = 0;          // by all ranks, in all checked passes: counted in the plans that ran
  std::int64_t forward_sent_bytes = 0;  // the forwards' part of it
  double least_bytes = 0;               // likewise: bytes that algorithms of minimal traffic would have sent
  std::int64_t formula_bytes = 0;       // likewise: bytes of such algorithms for the exchanges of the step model
  std::int64_t checked_passes = 0;
  std::int64_t memory_bytes = 0;  // on the rank that holds most: matrices, gradients, buffers of exchanges

  // Energy of a forward and a backward with overlapped exchanges. The text is one line, also without a counter. Only on
  // rank 0.
  std::optional<core::EnergyRecord> energy = {};
  std::string energy_text = {};

  bool is_wrong() const;
  const std::vector<double>& samples(Way way, Direction direction) const {
    return samples_us[static_cast<std::size_t>(way)][static_cast<std::size_t>(direction)];
  }
  double median_us(Way way, Direction direction) const { return core::median(samples(way, direction)); }
  // Forward and backward together.
  double median_us(Way way) const { return median_us(way, Direction::forward) + median_us(way, Direction::backward); }
  // Exposed communication of each round: time beyond that of kernels alone, for a way that has both.
  std::vector<double> exposed(Way way, Direction direction) const;
  double exposed_us(Way way, Direction direction) const { return core::median(exposed(way, direction)); }
  // Times of the round whose total is the median.
  const Spent& median_spent(Way way, Direction direction) const;
};

// Under mpirun all ranks call it, and all have the result.
std::vector<Form> run_case(const TpLinearFlags& flags, const Case& one, const Reference& reference);

// Serves the layer as a worker instead of measuring it: forward and backward with each number of tiles, one task after
// the other and with overlapped exchanges.
void serve_case(const TpLinearFlags& flags, const Case& one);

}  // namespace lockstep::tp_linear
