// Decides when a row has been timed often enough. It reads no clock: times are passed in, so that tests can use made-up
// series.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace lockstep::core {

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
