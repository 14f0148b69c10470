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

Estimate Estimate::within(double least, double most) const {
  constexpr double kSlack = 0.1;
  const double far = kSlack * (most - least);
  if (low > most + far || high < least - far) return {std::clamp(value, least, most), least, most};
  return {std::clamp(value, least, most), std::clamp(low, least, most), std::clamp(high, least, most)};
}

bool Estimate::is_known(double whole) const {
  constexpr double kPrecise = 0.25;
  return half() <= kPrecise * std::abs(whole);
}

Estimate estimate(std::span<const std::vector<double>> columns, const Figure& figure) {
  LOCKSTEP_CHECK(!columns.empty() && !columns.front().empty(), "estimate of nothing");
  constexpr std::size_t kParts = 6;
  constexpr std::size_t kFewest = 3;  // two that happen to be alike would decide anything
  const std::size_t count = columns.front().size();
  const auto figure_of = [&](std::size_t begin, std::size_t end) {
    std::vector<double> medians;
    for (const auto& column : columns) medians.push_back(median(std::span(column).subspan(begin, end - begin)));
    return figure(medians);
  };
  Estimate result{figure_of(0, count)};
  result.low = result.high = result.value;
  const std::size_t parts = std::min(count, kParts);
  for (std::size_t p = 0; p < parts; ++p) {
    const double part = figure_of(p * count / parts, (p + 1) * count / parts);
    result.low = std::min(result.low, part);
    result.high = std::max(result.high, part);
  }
  const double more = count < kFewest ? std::numeric_limits<double>::infinity() : result.high - result.low;
  if (count < kParts) result = {result.value, result.low - more, result.high + more};
  return result;
}

bool is_slower(const std::vector<double>& slow, const std::vector<double>& fast) {
  constexpr double kOfInterest = 1.05;
  const auto same = [](auto medians) { return medians[0]; };
  const Estimate a = estimate({&slow, 1}, same);
  const Estimate b = estimate({&fast, 1}, same);
  const double least = std::min(a.low, quantile_of_sorted(sorted_copy(slow), 0.05));
  return a.value > kOfInterest * b.value && least > b.high;
}

std::string undecided_text(const Estimate& figure, double whole) {
  const double percent = 100 * figure.half() / std::abs(whole);
  if (!std::isfinite(percent)) return "undecided on this machine: spread unknown";
  return "undecided on this machine: spread " + std::to_string(std::llround(std::min(percent, 1e6))) + " %";
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
