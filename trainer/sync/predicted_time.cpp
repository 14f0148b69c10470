#include "trainer/sync/predicted_time.h"

#include <algorithm>

#include "core/index.h"
#include "core/random.h"

namespace lockstep::trainer {
namespace {

double own_ms(const ReplicaRun& run, std::int32_t replica, std::int64_t step) {
  return run.straggler.step_ms * run.straggler.factor_of(replica, run.replicas, run.seed, step);
}

// Time of the whole run in ms, in rounds at whose ends all replicas meet.
double in_rounds_ms(const ReplicaRun& run) {
  double whole = 0;
  std::vector<double> of_round(at(run.replicas));
  for (std::int64_t step = 1; step <= run.steps; ++step) {
    for (std::int32_t r = 0; r < run.replicas; ++r) of_round[at(r)] += own_ms(run, r, step);
    if (!run.sync.agrees_after(step, run.steps)) continue;
    whole += *std::max_element(of_round.begin(), of_round.end());
    std::fill(of_round.begin(), of_round.end(), 0.0);
  }
  return whole;
}

// Time of the whole run in ms, with a server that serves replicas in the drawn order.
double in_order_ms(const ReplicaRun& run) {
  std::vector<double> ready;  // time of each replica's gradient
  for (std::int32_t r = 0; r < run.replicas; ++r) ready.push_back(own_ms(run, r, 1));
  double now = 0;
  for (const Exchange& exchange : order_of(run)) {
    double& own = ready[at(exchange.replica)];
    if (exchange.way == Exchange::Way::push) {
      now = std::max(now, own);
    } else {
      own = now + own_ms(run, exchange.replica, exchange.step);
    }
  }
  return now;
}

}  // namespace

std::vector<Exchange> order_of(const ReplicaRun& run) {
  const auto step_time = [&](std::int32_t replica, std::int64_t step) {
    core::Random random(core::hash64(run.seed, static_cast<std::uint64_t>(replica), static_cast<std::uint64_t>(step)));
    return run.straggler.factor_of(replica, run.replicas, run.seed, step) * (1 + run.sync.jitter * random.uniform());
  };
  return arrival_order({.replicas = run.replicas,
                        .pushes = run.steps * run.replicas,
                        .staleness = run.sync.staleness,
                        .step_time = step_time});
}

double predicted_step_ms(const ReplicaRun& run) {
  const double whole = run.sync.has_server_rank() ? in_order_ms(run) : in_rounds_ms(run);
  return whole / static_cast<double>(run.steps);
}

}  // namespace lockstep::trainer
