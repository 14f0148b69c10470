// One layer on its ranks, timed in turn in all ways and checked in every turn.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/parallel_layers/check.h"
#include "bench/parallel_layers/flags.h"
#include "bench/parallel_layers/pass.h"
#include "core/record.h"
#include "core/statistics.h"

namespace lockstep::layer_bench {

// A number of tiles: a row.
struct Form {
  int tiles = 1;
  // [way][direction], of each turn the slowest rank's.
  std::array<std::array<std::vector<double>, 2>, kNumWays> samples_us = {};
  std::array<std::array<std::vector<Spent>, 2>, kNumWays> spent_us = {};  // likewise
  std::int64_t wrong = 0;                                                 // elements of all ranks and turns
  std::int64_t unlike = 0;              // elements with other bits than in one tile, one after the other
  std::int64_t sent_bytes = 0;          // by all ranks, in all passes that were checked: counted in the plans that ran
  std::int64_t forward_sent_bytes = 0;  // the part of it that forwards sent
  double least_bytes = 0;          // likewise: what algorithms that send the fewest bytes would have sent of the same
  std::int64_t formula_bytes = 0;  // likewise: what these send of the exchanges of the step model
  std::int64_t checked_passes = 0;
  std::int64_t memory_bytes = 0;  // that the rank with the most holds: matrices, gradients, buffers of exchanges

  // Energy of a forward and a backward with exchanges beside kernels. The text is one line, also without a counter.
  // Rank 0 has it.
  std::optional<core::EnergyRecord> energy = {};
  std::string energy_text = {};

  bool is_wrong() const;
  const std::vector<double>& samples(Way way, Direction direction) const {
    return samples_us[static_cast<std::size_t>(way)][static_cast<std::size_t>(direction)];
  }
  double median_us(Way way, Direction direction) const { return core::median(samples(way, direction)); }
  // Forward and backward.
  double median_us(Way way) const { return median_us(way, Direction::forward) + median_us(way, Direction::backward); }
  // The time that communication adds to the kernels, for each round, in a way that has both.
  std::vector<double> exposed(Way way, Direction direction) const;
  double exposed_us(Way way, Direction direction) const { return core::median(exposed(way, direction)); }
  // Times of the round that is the median.
  const Spent& median_spent(Way way, Direction direction) const;
};

// Under mpirun all ranks call it, and all have the result.
std::vector<Form> run_case(const LayerFlags& flags, const Case& one, const Reference& reference);

// The layer as a worker, in place of a run: forward and backward in each number of tiles, one after the other and
// beside each other.
void serve_case(const LayerFlags& flags, const Case& one);

}  // namespace lockstep::layer_bench
