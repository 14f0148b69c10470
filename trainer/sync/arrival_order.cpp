#include "trainer/sync/arrival_order.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/index.h"

namespace lockstep::trainer {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

struct Replica {
  std::int64_t done = 0;
  std::int64_t pulled_at = 0;  // number of updates before its pull
  double ends = kNever;        // end of its current step; kNever: it is waiting
  double done_at = 0;          // end of its last step
};

class Clock {
 public:
  explicit Clock(const ArrivalRules& rules) : rules_(rules), replicas_(at(rules.replicas)) {}

  std::vector<Exchange> run() {
    for (std::int32_t r = 0; r < rules_.replicas; ++r) begin(r, 0);
    while (updates_ < rules_.pushes) {
      const std::int32_t first = first_to_end();
      push(first);
      release(replicas_[at(first)].done_at);
    }
    return without_idle_pulls();
  }

 private:
  void begin(std::int32_t r, double now) {
    replicas_[at(r)].ends = now + rules_.step_time(r, replicas_[at(r)].done + 1);
  }
  std::int32_t first_to_end() const {
    const auto first = std::min_element(replicas_.begin(), replicas_.end(),
                                        [](const Replica& a, const Replica& b) { return a.ends < b.ends; });
    LOCKSTEP_CHECK(first->ends < kNever, "the slowest replica never waits");
    return static_cast<std::int32_t>(first - replicas_.begin());
  }
  void push(std::int32_t r) {
    Replica& replica = replicas_[at(r)];
    replica.done_at = std::exchange(replica.ends, kNever);
    ++replica.done;
    order_.push_back({Exchange::Way::push, r, replica.done, updates_ - replica.pulled_at, replica.done_at});
    ++updates_;
  }
  // Lets the replicas that wait and may continue pull, in their order.
  void release(double now) {
    std::int64_t least = replicas_.front().done;
    for (const Replica& replica : replicas_) least = std::min(least, replica.done);
    for (std::int32_t r = 0; r < rules_.replicas; ++r) {
      Replica& replica = replicas_[at(r)];
      if (replica.ends < kNever || replica.done - least > rules_.staleness) continue;
      replica.pulled_at = updates_;
      order_.push_back({Exchange::Way::pull, r, replica.done + 1, 0, now});
      begin(r, now);
    }
  }
  std::vector<Exchange> without_idle_pulls() const {
    std::vector<Exchange> kept;
    for (const Exchange& one : order_) {
      if (one.way == Exchange::Way::push || one.step <= replicas_[at(one.replica)].done) kept.push_back(one);
    }
    return kept;
  }

  const ArrivalRules& rules_;
  std::vector<Replica> replicas_;
  std::vector<Exchange> order_;
  std::int64_t updates_ = 0;
};

}  // namespace

std::vector<Exchange> arrival_order(const ArrivalRules& rules) {
  LOCKSTEP_CHECK(rules.replicas > 0 && rules.pushes > 0, "replicas that push");
  return Clock(rules).run();
}

}  // namespace lockstep::trainer
