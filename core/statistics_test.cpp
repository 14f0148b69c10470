#include "core/statistics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/random.h"

namespace lockstep::core {
namespace {

using Samples = std::vector<double>;

// Exponential times above a minimum: skewed, as real timings are.
Samples skewed(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  Samples samples;
  for (std::size_t k = 0; k < count; ++k) samples.push_back(10 - std::log(1 - random.uniform()));
  return samples;
}

TEST(Quantile, IsType7) {
  const Samples x{1, 2, 3, 4};  // expected values are from numpy.quantile
  EXPECT_DOUBLE_EQ(quantile_of_sorted(x, 0), 1);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(x, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(x, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(x, 0.95), 3.85);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(x, 1), 4);
  EXPECT_DOUBLE_EQ(quantile_of_sorted(Samples{7}, 0.99), 7);
  EXPECT_THROW(quantile_of_sorted(Samples{}, 0.5), Error);
  EXPECT_THROW(quantile_of_sorted(x, 1.5), Error);
}

TEST(Median, OfOddAndEvenCounts) {
  EXPECT_EQ(median(Samples{3, 1, 2}), 2);
  EXPECT_EQ(median(Samples{4, 1, 3, 2}), 2.5);
  EXPECT_EQ(median(Samples{5}), 5);
}

TEST(Summary, OfKnownSamples) {
  const Summary summary = summarize(Samples{2, 4, 4, 4, 5, 5, 7, 9});
  EXPECT_EQ(summary.count, 8u);
  EXPECT_EQ(summary.median, 4.5);
  EXPECT_EQ(summary.mean, 5);
  EXPECT_EQ(summary.min, 2);
  EXPECT_EQ(summary.max, 9);
  EXPECT_EQ(summary.stddev, 2);
  EXPECT_DOUBLE_EQ(summary.p5, 2.7);
  EXPECT_DOUBLE_EQ(summary.p95, 8.3);
  EXPECT_DOUBLE_EQ(summary.p99, 8.86);
  EXPECT_LE(summary.ci_low, summary.median);
  EXPECT_GE(summary.ci_high, summary.median);
}

TEST(Summary, OfOneSampleAndOfNone) {
  const Summary summary = summarize(Samples{3});
  EXPECT_EQ(summary.p5, 3);
  EXPECT_EQ(summary.ci_low, 3);
  EXPECT_EQ(summary.ci_high, 3);
  EXPECT_EQ(summary.stddev, 0);
  EXPECT_EQ(summarize(Samples{}).count, 0u);
}

TEST(Summary, DoesNotDependOnTheOrder) {
  Samples samples = skewed(101, 1);
  const Summary forward = summarize(samples);
  std::reverse(samples.begin(), samples.end());
  const Summary backward = summarize(samples);
  EXPECT_EQ(forward.ci_low, backward.ci_low);
  EXPECT_EQ(forward.mean, backward.mean);
}

double difference(std::span<const double> medians) {
  return medians[0] - medians[1];
}

// Rounds are drawn together: what slows both columns of a round does not widen their difference.
TEST(Estimate, OfADifferenceKeepsRoundsTogether) {
  const Samples compute = skewed(40, 5);
  Samples step = compute;
  for (double& ms : step) ms += 3;
  const Estimate exposed = estimate(std::vector{step, compute}, difference);
  EXPECT_NEAR(exposed.value, 3, 1e-9);
  EXPECT_NEAR(exposed.half(), 0, 1e-9);
  EXPECT_TRUE(exposed.is_known(exposed.value));
}

// Disturbances that last for many rounds make the interval wide, whatever the number of rounds.
TEST(Estimate, OfADisturbedSixthIsWide) {
  Samples samples = skewed(300, 8);
  const auto half = [&] { return estimate({&samples, 1}, [](auto medians) { return medians[0]; }).half(); };
  EXPECT_LT(half(), 0.3);
  for (std::size_t k = 100; k < 150; ++k) samples[k] += 100;
  EXPECT_GT(half(), 45);
}

TEST(Estimate, OfOneRoundOrOfNoiseIsUndecided) {
  const Estimate result = estimate(std::vector{Samples{3}, Samples{1}}, difference);
  EXPECT_FALSE(result.is_known(result.value));
  EXPECT_EQ(undecided_text(result, result.value), "undecided on this machine: spread unknown");
  const Estimate alike = estimate(std::vector{Samples{3, 3}, Samples{1, 1}}, difference);
  EXPECT_FALSE(alike.is_known(1)) << "two rounds that happen to be alike decide nothing";
  const Estimate noise = estimate(std::vector{Samples{3, 9, 5}, Samples{4, 2, 6}}, difference);
  EXPECT_EQ(noise.low, -9);
  EXPECT_EQ(noise.high, 15);
  EXPECT_FALSE(noise.is_known(10));
  EXPECT_EQ(undecided_text(noise, 10), "undecided on this machine: spread 120 %");
  EXPECT_EQ((Estimate{-5, -6, -4}.within(0, 1).high), 1);  // cannot be, so that nothing is known
  EXPECT_EQ((Estimate{1.04, 1.02, 1.06}.within(0, 1).low), 1);
  EXPECT_EQ(noise.within(0, 10).low, 0);
  EXPECT_EQ(noise.within(0, 10).high, 10);
}

TEST(IsSlower, NeedsIntervalsApartAndTheLeastDisturbedSamplesInTheSameOrder) {
  Samples slow = skewed(40, 6);
  const Samples fast = skewed(40, 7);
  EXPECT_FALSE(is_slower(slow, fast));
  EXPECT_FALSE(is_slower(Samples{3}, Samples{1}));
  for (double& us : slow) us *= 1.5;
  EXPECT_TRUE(is_slower(slow, fast));
  EXPECT_FALSE(is_slower(fast, slow));
  Samples disturbed = fast;  // most of them by a time slice, some by nothing
  for (std::size_t k = 0; k < disturbed.size(); ++k) disturbed[k] += k % 8 == 0 ? 0.0 : 1000.0;
  EXPECT_FALSE(is_slower(disturbed, slow));
}

TEST(Bootstrap, IsDeterministicAndDependsOnTheSeed) {
  const Samples samples = skewed(50, 2);
  EXPECT_EQ(bootstrap_median(samples, 1).low, bootstrap_median(samples, 1).low);
  const Interval interval = bootstrap_median(samples, 1);
  const Interval two = bootstrap_median(samples, 2);
  EXPECT_TRUE(interval.low != two.low || interval.high != two.high);
}

// The interval covers the true median in about 95 of 100 experiments.
TEST(Bootstrap, CoversTheMedianAsOftenAsItStates) {
  const double truth = 10 + std::log(2);
  int covered = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Interval interval = bootstrap_median(skewed(40, 1000 + seed), seed, 400);
    if (interval.low <= truth && truth <= interval.high) ++covered;
  }
  EXPECT_GE(covered, 366);  // 91.5 % of 400
  EXPECT_LE(covered, 394);  // 98.5 % of 400
}

TEST(Bootstrap, NarrowsWithTheRootOfTheCount) {
  const auto width = [](std::size_t count) {
    const Interval interval = bootstrap_median(skewed(count, 3));
    return interval.high - interval.low;
  };
  EXPECT_NEAR(width(100) / width(10000), 10, 5);
}

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
