#include "core/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "core/random.h"

namespace lockstep::core {
namespace {

std::vector<double> sorted_copy(std::span<const double> samples) {
  std::vector<double> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

// Partially sorts `values`, which is cheaper than sorting them completely.
double median_in_place(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

}  // namespace

double quantile_of_sorted(std::span<const double> sorted, double q) {
  LOCKSTEP_CHECK(!sorted.empty() && q >= 0 && q <= 1, "no such quantile");
  const double position = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

double median(std::span<const double> samples) {
  LOCKSTEP_CHECK(!samples.empty(), "median of nothing");
  std::vector<double> values(samples.begin(), samples.end());
  return median_in_place(values);
}

Interval bootstrap_median(std::span<const double> samples, std::uint64_t seed, int resamples) {
  LOCKSTEP_CHECK(!samples.empty() && resamples > 0, "bootstrap of nothing");
  Random random(seed);
  std::vector<double> medians;
  std::vector<double> drawn(samples.size());
  for (int k = 0; k < resamples; ++k) {
    for (double& value : drawn) value = samples[random.below(samples.size())];
    medians.push_back(median_in_place(drawn));
  }
  std::sort(medians.begin(), medians.end());
  return {quantile_of_sorted(medians, 0.025), quantile_of_sorted(medians, 0.975)};
}

Summary summarize(std::span<const double> samples) {
  if (samples.empty()) return {};
  const std::vector<double> sorted = sorted_copy(samples);
  const auto count = static_cast<double>(sorted.size());
  Summary summary;
  summary.count = sorted.size();
  summary.median = quantile_of_sorted(sorted, 0.5);
  summary.mean = std::accumulate(sorted.begin(), sorted.end(), 0.0) / count;
  summary.min = sorted.front();
  summary.max = sorted.back();
  summary.p5 = quantile_of_sorted(sorted, 0.05);
  summary.p95 = quantile_of_sorted(sorted, 0.95);
  summary.p99 = quantile_of_sorted(sorted, 0.99);
  double squares = 0;
  for (double x : sorted) squares += (x - summary.mean) * (x - summary.mean);
  summary.stddev = std::sqrt(squares / count);
  const Interval interval = bootstrap_median(sorted);
  summary.ci_low = interval.low;
  summary.ci_high = interval.high;
  return summary;
}

StoppingRule::StoppingRule(const StoppingOptions& options) : options_(options), next_look_(options.min_samples) {
  LOCKSTEP_CHECK(options.max_samples > 0, "a row needs a sample");
}

void StoppingRule::add(double sample_us, double elapsed_us) {
  LOCKSTEP_CHECK(stop_ == Stop::no, "a sample after the end");
  samples_.push_back(sample_us);
  stop_ = decide(elapsed_us);
}

Stop StoppingRule::decide(double elapsed_us) {
  if (samples_.size() >= options_.max_samples) return Stop::most_samples;
  if (elapsed_us >= options_.time_budget_us) return Stop::time_spent;
  if (options_.wanted_precision <= 0 || samples_.size() < next_look_) return Stop::no;
  next_look_ = samples_.size() + samples_.size() / 4 + 1;
  return is_precise() ? Stop::precise : Stop::no;
}

bool StoppingRule::is_precise() const {
  const Interval interval = bootstrap_median(samples_);
  return (interval.high - interval.low) / 2 <= options_.wanted_precision * median(samples_);
}

}  // namespace lockstep::core
