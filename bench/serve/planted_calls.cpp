#include "bench/serve/orders.h"

#include <cstdlib>

#include "core/options.h"

namespace lockstep::serve {
namespace {

constexpr const char* kVariable = "LOCKSTEP_PLANTED_PERCENT";

double ns_since(PlantedDelay::Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(PlantedDelay::Clock::now() - start).count();
}

}  // namespace

double planted_percent() {
  const char* const text = std::getenv(kVariable);
  if (text == nullptr) return 0;
  return core::OptionText{kVariable, text, '='}.number_from(0, 1000);
}

void PlantedDelay::pass(Clock::time_point start) {
  const auto begin = Clock::now();
  owed_ns_ += share_ * std::chrono::duration<double, std::nano>(begin - start).count();
  if (owed_ns_ <= 0) return;
  double spent_ns = 0;
  while ((spent_ns = ns_since(begin)) < owed_ns_) {
  }
  owed_ns_ -= spent_ns;
}

// The delay follows each of the timed calls: in a collective every rank delays before the next call.
double us_of_calls(std::int64_t calls, const std::function<void()>& call) {
  PlantedDelay delay(planted_percent());
  const auto start = PlantedDelay::Clock::now();
  for (std::int64_t left = calls; left > 0; --left) {
    const auto start_of_call = PlantedDelay::Clock::now();
    call();
    delay.pass(start_of_call);
  }
  return ns_since(start) / 1e3 / static_cast<double>(calls);
}

}  // namespace lockstep::serve
