#include "core/stopping.h"

#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "core/random.h"
#include "core/statistics.h"

namespace lockstep::core {
namespace {

// Feeds samples until the rule stops; each sample takes exactly its own time.
StoppingRule fed(const StoppingOptions& options, const std::function<double(std::size_t)>& sample) {
  StoppingRule rule(options);
  double elapsed_us = 0;
  for (std::size_t k = 0; rule.stop() == Stop::no; ++k) {
    elapsed_us += sample(k);
    rule.add(sample(k), elapsed_us);
  }
  return rule;
}

TEST(StoppingRule, WithoutAWishItTakesTheMostSamples) {
  const StoppingRule rule = fed({.max_samples = 20}, [](std::size_t) { return 1.0; });
  EXPECT_EQ(rule.stop(), Stop::most_samples);
  EXPECT_EQ(rule.samples().size(), 20u);
}

TEST(StoppingRule, AConstantSeriesIsPreciseAtOnce) {
  const StoppingRule rule =
      fed({.min_samples = 7, .max_samples = 1000, .wanted_precision = 0.01}, [](std::size_t) { return 5.0; });
  EXPECT_EQ(rule.stop(), Stop::precise);
  EXPECT_EQ(rule.samples().size(), 7u);
}

TEST(StoppingRule, ANoisySeriesStopsWhenItsMedianIsKnown) {
  const auto noisy = [](double spread) {
    return [spread](std::size_t k) { return 100 + spread * (static_cast<double>(hash64(1, k) >> 40) * 0x1p-24 - 0.5); };
  };
  const StoppingOptions options{.min_samples = 5, .max_samples = 100000, .wanted_precision = 0.01};
  const StoppingRule calm = fed(options, noisy(5));
  const StoppingRule wild = fed(options, noisy(60));
  EXPECT_EQ(calm.stop(), Stop::precise);
  EXPECT_EQ(wild.stop(), Stop::precise);
  EXPECT_GT(wild.samples().size(), 4 * calm.samples().size());
  const Interval interval = bootstrap_median(wild.samples());
  EXPECT_LE((interval.high - interval.low) / 2, 0.01 * median(wild.samples()));
}

TEST(StoppingRule, ADriftingSeriesNeverGetsPrecise) {
  const StoppingRule rule =
      fed({.max_samples = 300, .wanted_precision = 0.01}, [](std::size_t k) { return 1.0 + static_cast<double>(k); });
  EXPECT_EQ(rule.stop(), Stop::most_samples);
}

TEST(StoppingRule, TheTimeBudgetWinsEvenOverTheLeastSamples) {
  const StoppingRule rule = fed({.min_samples = 5, .max_samples = 100, .wanted_precision = 0.01, .time_budget_us = 25},
                                [](std::size_t) { return 10.0; });
  EXPECT_EQ(rule.stop(), Stop::time_spent);
  EXPECT_EQ(rule.samples().size(), 3u);
}

TEST(StoppingRule, OneSampleIsAlwaysTaken) {
  const StoppingRule rule = fed({.max_samples = 100, .time_budget_us = 0}, [](std::size_t) { return 10.0; });
  EXPECT_EQ(rule.samples().size(), 1u);
  EXPECT_THROW(StoppingRule({.max_samples = 0}), Error);
}

TEST(StoppingRule, TakesNothingAfterTheEnd) {
  StoppingRule rule = fed({.max_samples = 1}, [](std::size_t) { return 1.0; });
  EXPECT_THROW(rule.add(1, 2), Error);
}

}  // namespace
}  // namespace lockstep::core
