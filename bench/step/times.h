// The times of a part's passes, which are run in all modes in every round.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bench/step/pass.h"
#include "core/record.h"
#include "core/statistics.h"

namespace lockstep::step_bench {

// The round whose time is the median; of an even number of rounds, the shorter of the two in the middle.
std::size_t median_round(std::span<const double> samples);

struct PassTime {
  double us = 0;
  Spent spent = {};
};

class PassTimes {
 public:
  // The next round's times of all ranks.
  void add(Mode mode, Direction direction, const std::vector<PassTime>& of_rank);

  // The slowest rank's.
  const std::vector<double>& samples(Mode mode, Direction direction) const { return of(mode, direction).slowest_us; }
  double median_us(Mode mode, Direction direction) const { return core::median(samples(mode, direction)); }
  // Forward and backward together.
  double median_us(Mode mode) const {
    return median_us(mode, Direction::forward) + median_us(mode, Direction::backward);
  }
  std::vector<double> both(Mode mode) const;  // time of each round, forward and backward together
  // Exposed communication of each round: time beyond that of kernels alone, for a mode that has both.
  std::vector<double> exposed(Mode mode, Direction direction) const;
  double exposed_us(Mode mode, Direction direction) const { return core::median(exposed(mode, direction)); }
  // The slowest rank's in median_round().
  const Spent& median_spent(Mode mode, Direction direction) const;

  // [round][rank].
  const std::vector<std::vector<PassTime>>& of_rank(Mode mode, Direction direction) const {
    return of(mode, direction).of_rank;
  }
  // Likewise: forward and backward together.
  std::vector<std::vector<PassTime>> of_ranks(Mode mode) const;

  // For records (docs/record_format.md): forward and backward in each mode that ran. `shares` are their names.
  std::vector<core::StepTimeRecord> records(std::span<const char* const> shares) const;

 private:
  struct Rounds {
    std::vector<std::vector<PassTime>> of_rank;  // [round][rank]
    std::vector<double> slowest_us;              // [round]
    std::vector<Spent> slowest_spent;            // [round]
  };
  const Rounds& of(Mode mode, Direction direction) const {
    return rounds_[static_cast<std::size_t>(mode)][static_cast<std::size_t>(direction)];
  }

  std::array<std::array<Rounds, 2>, kNumModes> rounds_;  // [mode][direction]
};

}  // namespace lockstep::step_bench
