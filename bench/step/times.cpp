#include "bench/step/times.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::step_bench {
namespace {

constexpr std::array kModesOfRecords{
    std::pair{Mode::kernels, "kernels"},
    std::pair{Mode::exchanges, "communication"},
    std::pair{Mode::serial, "serial"},
    std::pair{Mode::overlapped, "async"},
};

}  // namespace

std::size_t median_round(std::span<const double> samples) {
  std::vector<std::size_t> rounds(samples.size());
  std::iota(rounds.begin(), rounds.end(), std::size_t{0});
  const auto middle = rounds.begin() + static_cast<std::ptrdiff_t>((rounds.size() - 1) / 2);
  std::nth_element(rounds.begin(), middle, rounds.end(),
                   [&](std::size_t a, std::size_t b) { return samples[a] < samples[b]; });
  return *middle;
}

void PassTimes::add(Mode mode, Direction direction, const std::vector<PassTime>& of_rank) {
  Rounds& rounds = rounds_[static_cast<std::size_t>(mode)][static_cast<std::size_t>(direction)];
  const PassTime& slowest = *std::max_element(of_rank.begin(), of_rank.end(),
                                              [](const PassTime& a, const PassTime& b) { return a.us < b.us; });
  rounds.of_rank.push_back(of_rank);
  rounds.slowest_us.push_back(slowest.us);
  rounds.slowest_spent.push_back(slowest.spent);
}

std::vector<double> PassTimes::both(Mode mode) const {
  std::vector<double> sums = samples(mode, Direction::forward);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += samples(mode, Direction::backward)[i];
  return sums;
}

std::vector<double> PassTimes::exposed(Mode mode, Direction direction) const {
  std::vector<double> differences = samples(mode, direction);
  const std::vector<double>& kernels = samples(Mode::kernels, direction);
  std::transform(differences.begin(), differences.end(), kernels.begin(), differences.begin(),
                 [](double both, double alone) { return both - alone; });
  return differences;
}

const Spent& PassTimes::median_spent(Mode mode, Direction direction) const {
  return of(mode, direction).slowest_spent[median_round(samples(mode, direction))];
}

std::vector<std::vector<PassTime>> PassTimes::of_ranks(Mode mode) const {
  std::vector<std::vector<PassTime>> sums = of(mode, Direction::forward).of_rank;
  const auto& backward = of(mode, Direction::backward).of_rank;
  for (std::size_t round = 0; round < sums.size(); ++round) {
    for (std::size_t rank = 0; rank < sums[round].size(); ++rank) {
      PassTime& sum = sums[round][rank];
      const PassTime& other = backward[round][rank];
      sum.us += other.us;
      for (std::size_t share = 0; share < sum.spent.size(); ++share) sum.spent[share] += other.spent[share];
    }
  }
  return sums;
}

std::vector<core::StepTimeRecord> PassTimes::records(std::span<const char* const> shares) const {
  std::vector<core::StepTimeRecord> records;
  for (const Direction direction : kDirections) {
    for (const auto& [mode, name] : kModesOfRecords) {
      if (samples(mode, direction).empty()) continue;
      core::StepTimeRecord& time = records.emplace_back();
      time.direction = name_of(direction);
      time.mode = name;
      time.samples_us = samples(mode, direction);
      const Spent& spent = median_spent(mode, direction);
      for (std::size_t s = 0; s < shares.size(); ++s) time.parts_us.emplace_back(shares[s], std::max(spent[s], 0.0));
      if (is_whole(mode) && !samples(Mode::kernels, direction).empty()) time.exposed_us = exposed(mode, direction);
    }
  }
  return records;
}

}  // namespace lockstep::step_bench
