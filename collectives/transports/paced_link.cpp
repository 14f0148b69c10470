#include "collectives/transports/paced_link.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <thread>

#include "core/error.h"

namespace lockstep::transports {
namespace {

double parse_number(std::string_view text, std::string_view whole) {
  double value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= 0)) {
    throw core::usage_error("--link '" + std::string(whole) + "': '" + std::string(text) +
                            "' is not a number of zero or more; allowed: latency_us=NUMBER,gbps=NUMBER");
  }
  return value;
}

}  // namespace

LinkSpec parse_link(std::string_view text) {
  LinkSpec spec;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    if (equals == std::string_view::npos || (key != "latency_us" && key != "gbps")) {
      throw core::usage_error("--link '" + std::string(text) + "': cannot read '" + std::string(item) +
                              "'; allowed: latency_us=NUMBER,gbps=NUMBER");
    }
    (key == "gbps" ? spec.gbps : spec.latency_us) = parse_number(item.substr(equals + 1), text);
  }
  if (spec.latency_us == 0 && spec.gbps == 0) {
    throw core::usage_error("--link '" + std::string(text) +
                            "': states neither a latency nor a bandwidth; allowed: latency_us=NUMBER,gbps=NUMBER");
  }
  return spec;
}

std::int64_t occupied_ns(const LinkSpec& link, std::int64_t size_bytes) {
  return link.gbps > 0 ? static_cast<std::int64_t>(static_cast<double>(size_bytes) / link.gbps) : 0;
}

std::int64_t latency_ns(const LinkSpec& link) {
  return static_cast<std::int64_t>(link.latency_us * 1e3);
}

std::int64_t LinkTable::book(int from, int to, std::int64_t size_bytes, std::int64_t ready_ns) {
  while (booking_.exchange(true, std::memory_order_acquire)) sched_yield();  // held for a few instructions only
  std::atomic<std::int64_t>& out = ports_[from].out_free_ns;
  std::atomic<std::int64_t>& in = ports_[to].in_free_ns;
  const std::int64_t start =
      std::max({ready_ns, out.load(std::memory_order_relaxed), in.load(std::memory_order_relaxed)});
  const std::int64_t left = start + occupied_ns(spec_, size_bytes);
  out.store(left, std::memory_order_relaxed);
  in.store(left, std::memory_order_relaxed);
  booking_.store(false, std::memory_order_release);
  return left + latency_ns(spec_);
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(core::Clock::now().time_since_epoch()).count();
}

void wait_until_ns(std::int64_t time_ns) {
  constexpr std::int64_t kWakeUpNs = 80'000;  // a sleep may end so much late
  while (true) {
    const std::int64_t left = time_ns - now_ns();
    if (left <= 0) return;
    if (left > kWakeUpNs) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(left - kWakeUpNs));
    } else {
      sched_yield();
    }
  }
}

void sleep_until_ns(std::int64_t time_ns) {
  constexpr unsigned long kSlackNs = 1000;  // of this thread's timers; 50 us unless said otherwise
  prctl(PR_SET_TIMERSLACK, kSlackNs, 0, 0, 0);
  for (std::int64_t left = time_ns - now_ns(); left > 0; left = time_ns - now_ns()) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(left));
  }
}

}  // namespace lockstep::transports
