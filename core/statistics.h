// Statistics of samples. All functions are deterministic; samples may be in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::core {

// The q-quantile, 0 <= q <= 1, by linear interpolation between order statistics: type 7 of Hyndman and Fan, "Sample
// quantiles in statistical packages" (1996), the default of R and numpy. q = 0.5 gives the usual median. `sorted` must
// be in ascending order and not empty.
double quantile_of_sorted(std::span<const double> sorted, double q);

double median(std::span<const double> samples);  // `samples` must not be empty

struct Interval {
  double low;
  double high;
};

// 95 % confidence interval of the median: percentile bootstrap (Efron and Tibshirani 1993, section 13.3). A single
// sample gives an interval of zero width; fewer than about ten samples give one that is too narrow.
Interval bootstrap_median(std::span<const double> samples, std::uint64_t seed = 1, int resamples = 1000);

struct Summary {
  std::size_t count = 0;
  double median = 0, mean = 0, min = 0, max = 0;
  double p5 = 0, p95 = 0, p99 = 0;
  double stddev = 0;               // population standard deviation: divides by count
  double ci_low = 0, ci_high = 0;  // bootstrap_median()
};

Summary summarize(std::span<const double> samples);  // all zero without samples

}  // namespace lockstep::core
