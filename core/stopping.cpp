#include "core/stopping.h"

#include "core/error.h"
#include "core/statistics.h"

namespace lockstep::core {

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
