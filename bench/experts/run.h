// Runs one case on its ranks: timed in every round, one part after the other and with exchanges overlapping the shared
// experts, and checked in every round.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/experts/flags.h"
#include "bench/experts/rank.h"
#include "core/record.h"
#include "core/statistics.h"

namespace lockstep::experts_bench {

enum class Way : std::uint8_t { serial, async };  // async: exchanges overlap with kernels that do not need them
inline constexpr std::size_t kNumWays = 2;

struct Result {
  // [way][direction], the slowest rank's time in each round, and its parts in the round of the median.
  std::array<std::array<std::vector<double>, 2>, kNumWays> samples_us = {};
  std::array<std::array<PartTimes, 2>, kNumWays> parts_us = {};
  // Time of the experts' own work, forward and backward, one after the other: medians over rounds.
  double experts_slowest_us = 0;  // on the slowest rank
  double experts_mean_us = 0;     // mean over ranks
  std::int64_t most_rows = 0;     // on the rank with most
  double mean_rows = 0;
  double most_load = 0;  // copies for the most loaded expert over an even share
  std::int64_t copies = 0;
  std::int64_t dropped = 0;        // copies, over all ranks
  std::int64_t sent_bytes = 0;     // by all ranks, forward and backward: counted in the plans that ran
  std::int64_t formula_bytes = 0;  // likewise, from the rows that each pair of ranks exchanges
  std::int64_t checked_passes = 0;
  // Energy of a forward and a backward with exchanges overlapping the shared experts. The text is one line, also
  // without a counter.
  std::optional<core::EnergyRecord> energy = {};
  std::string energy_text = {};
  std::int64_t wrong = 0;  // elements, over all ranks and rounds

  double median_us(Way way, int direction) const {
    return core::median(samples_us[static_cast<std::size_t>(way)][static_cast<std::size_t>(direction)]);
  }
  double median_us(Way way) const { return median_us(way, 0) + median_us(way, 1); }
  bool is_wrong() const { return wrong != 0 || sent_bytes != formula_bytes; }
};

Result run_case(const ExpertsFlags& flags, const Case& one);

}  // namespace lockstep::experts_bench
