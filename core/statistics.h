// Statistics of samples. All functions are deterministic; samples may be in any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

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

// A figure that is derived from times, with its interval. docs/method.md describes when it is given.
struct Estimate {
  double value = 0;
  double low = 0;
  double high = 0;

  // Limited to what is physically possible; the whole range if the interval misses it by a tenth, as then the figure is
  // noise.
  Estimate within(double least, double most) const;
  double half() const { return (high - low) / 2; }
  // True if the interval's half is at most a quarter of `whole`: of a share's 1, or of the value itself.
  bool is_known(double whole) const;
};

// figure(medians) of the columns' medians, such as step - compute, and its least and largest value over six parts of
// consecutive rounds: 6 of 6 are on one side of the truth in 3 of 100 cases, also where other programs disturb many
// rounds in a row. Columns are samples of the same rounds, in the order in which they were taken. Fewer than six rounds
// give their range with as much again on both sides, one or two an infinite interval.
using Figure = std::function<double(std::span<const double> medians)>;
Estimate estimate(std::span<const std::vector<double>> columns, const Figure& figure);

// True if the times of `slow` are longer for certain: by more than 5 %, and the near end of its interval, and its 5th
// percentile, which other programs lengthen least, are beyond the interval of `fast`.
bool is_slower(const std::vector<double>& slow, const std::vector<double>& fast);

// "undecided on this machine: spread 40 %", with the interval's half relative to `whole`.
std::string undecided_text(const Estimate& figure, double whole);

struct Summary {
  std::size_t count = 0;
  double median = 0, mean = 0, min = 0, max = 0;
  double p5 = 0, p95 = 0, p99 = 0;
  double stddev = 0;               // population standard deviation: divides by count
  double ci_low = 0, ci_high = 0;  // bootstrap_median()
};

Summary summarize(std::span<const double> samples);  // all zero without samples

// Decides when a row has been timed often enough. It reads no clock: times are passed in, so that tests can use made-up
// series.

struct StoppingOptions {
  std::size_t min_samples = 5;
  std::size_t max_samples = 20;
  // Half the width of the median's 95 % confidence interval divided by the median; 0: never precise enough, so that
  // only max_samples or the time budget ends a row.
  double wanted_precision = 0;
  double time_budget_us =
      std::numeric_limits<double>::infinity();  // time budget of the row; takes precedence over min_samples
};

enum class Stop : unsigned char { no, precise, most_samples, time_spent };

// Checks the precision each time the number of samples has grown by a quarter: checking after every sample would make
// it likely to stop at a moment of chance precision, and cost time between samples.
class StoppingRule {
 public:
  explicit StoppingRule(const StoppingOptions& options);

  // Adds one sample; `elapsed_us` is the time since the row began, everything included.
  void add(double sample_us, double elapsed_us);

  Stop stop() const { return stop_; }
  const std::vector<double>& samples() const { return samples_; }

 private:
  Stop decide(double elapsed_us);
  bool is_precise() const;

  StoppingOptions options_;
  std::vector<double> samples_;
  std::size_t next_look_;
  Stop stop_ = Stop::no;
};

}  // namespace lockstep::core
