#include "bench/serve/orders.h"

#include <chrono>

namespace lockstep::serve {

double us_of_calls(std::int64_t calls, const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t left = calls; left > 0; --left) call();
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  return time.count() / static_cast<double>(calls);
}

}  // namespace lockstep::serve
