#include "bench/parallel/ddp_result.h"

#include <algorithm>

#include "bench/parallel/sent_counter.h"
#include "core/statistics.h"

namespace lockstep::parallel_bench {

double DdpResult::compute_ms() const {
  return core::median(turns.compute_ms);
}
double DdpResult::communication_ms() const {
  return core::median(turns.communication_ms);
}
double DdpResult::step_ms() const {
  return core::median(turns.step_ms);
}
double DdpResult::one_by_one_ms() const {
  return core::median(turns.one_by_one_ms);
}
double DdpResult::backward_ms() const {
  return core::median(turns.backward_ms);
}
double DdpResult::predicted_ms() const {
  return core::median(turns.predicted_ms);
}
double DdpResult::breakdown_exposed_ms() const {
  return core::median(turns.exposed_ms);
}

std::vector<double> DdpResult::exposed_samples_ms() const {
  std::vector<double> differences;
  for (std::size_t i = 0; i < turns.step_ms.size(); ++i) {
    differences.push_back(turns.step_ms[i] - turns.compute_ms[i]);
  }
  return differences;
}

double DdpResult::exposed_ms() const {
  return core::median(exposed_samples_ms());
}

bool DdpResult::sent_as_formula() const {
  return parallel_bench::sent_as_formula(sent_bytes, least_bytes, formula_bytes);
}

double DdpResult::efficiency() const {
  const double most = std::min(communication_ms(), backward_ms());
  return (communication_ms() - exposed_ms()) / most;
}

}  // namespace lockstep::parallel_bench
