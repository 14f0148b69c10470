// How much of the ideal throughput a layout reaches, what reduces it, and whether the samples decide it.
#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "bench/scaling/scaling.h"
#include "core/error.h"

namespace lockstep::scaling {

constexpr std::size_t kBootstrapped = 10;

core::Interval interval_of(std::span<const double> samples) {
  if (samples.size() >= kBootstrapped) return core::bootstrap_median(samples);
  const auto [low, high] = std::minmax_element(samples.begin(), samples.end());
  return {*low, *high};
}

namespace {

constexpr std::size_t kFewestRounds = 6;  // the range of 6 samples holds their median with 97 %: 1 - 2 / 2^6
constexpr double kMostOthers = 0.1;
constexpr double kNarrow = 0.05;  // half the width of an interval that decides that nothing is lost

constexpr std::array kCauses{"compute", "communication", "bubble", "other"};

std::size_t cause_of(std::string_view part) {
  if (part.starts_with("exposed")) return 1;
  return part == "bubble" ? 2 : part == "around" ? 3 : 0;
}

core::IntervalRecord record_of(const core::Interval& interval) {
  return {interval.low, interval.high};
}

Loss loss_of(const char* to, const std::vector<double>& shares) {
  return {to, core::median(shares), record_of(interval_of(shares))};
}

// The shares of one round: how much longer each part is than in one rank's step at its ideal length.
std::array<double, kCauses.size()> shares_of(const StepSample& single, const StepSample& many, double scale) {
  std::array<double, kCauses.size()> shares = {};
  for (const auto& [part, ms] : many.parts_ms) shares[cause_of(part)] += ms / many.ms;
  for (const auto& [part, ms] : single.parts_ms) shares[cause_of(part)] -= ms * scale / many.ms;
  return shares;
}

void decide(Efficiency& efficiency, const core::Interval& interval, std::size_t rounds, const Ideal& ideal) {
  const auto [low, high] = interval;
  if (ideal.others > kMostOthers) {
    efficiency.undecided =
        fmt::format("other programs used {:.0f} % of the cores; an idle machine would decide", 100 * ideal.others);
  } else if (rounds < kFewestRounds && !ideal.simulated) {
    efficiency.undecided =
        fmt::format("{} of at least {} rounds; more --rounds or --time-budget would decide", rounds, kFewestRounds);
  } else if (low > 1 && !ideal.can_exceed) {
    efficiency.undecided = fmt::format(
        "{:.0f} to {:.0f} % is not possible with the same work per rank: one rank's steps were disturbed; an idle "
        "machine would decide",
        100 * low, 100 * high);
  } else if (high >= 1 && low <= 1 && high - low > 2 * kNarrow) {
    efficiency.undecided = fmt::format("spread {:.0f} % in {} rounds; more --rounds or an idle machine would decide",
                                       50 * (high - low), rounds);
  } else {
    efficiency.verdict = high < 1 ? "loss" : low > 1 ? "superlinear" : "no loss";
  }
}

}  // namespace

Efficiency efficiency_of(std::span<const StepSample> one, std::span<const StepSample> many, const Ideal& ideal) {
  LOCKSTEP_CHECK(one.size() == many.size() && !one.empty(), "each round has a step of one rank");
  const double scale = ideal.work / ideal.speedup;
  std::vector<double> reached;
  std::array<std::vector<double>, kCauses.size()> shares;
  for (std::size_t round = 0; round < one.size(); ++round) {
    reached.push_back(one[round].ms * scale / many[round].ms);
    const auto of_round = shares_of(one[round], many[round], scale);
    for (std::size_t cause = 0; cause < kCauses.size(); ++cause) shares[cause].push_back(of_round[cause]);
  }
  const core::Interval interval = interval_of(reached);
  Efficiency efficiency{.value = core::median(reached), .ideal_speedup = ideal.speedup};
  if (!ideal.simulated) efficiency.interval = record_of(interval);
  decide(efficiency, interval, one.size(), ideal);
  if (ideal.shares_cores) {  // a rank's waits are kernels of the rank that has its core
    efficiency.losses = {{"cores", 1 - efficiency.value, {1 - interval.high, 1 - interval.low}}};
    return efficiency;
  }
  double named = efficiency.value;
  for (std::size_t cause = 0; cause < kCauses.size(); ++cause) {
    efficiency.losses.push_back(loss_of(kCauses[cause], shares[cause]));
    if (cause + 1 < kCauses.size()) named += efficiency.losses.back().share;
  }
  efficiency.losses.back().share = 1 - named;  // medians of parts do not add up to the median of the whole
  return efficiency;
}

}  // namespace lockstep::scaling
