#include "core/host_load.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/ranks.h"

namespace lockstep::core {
namespace {

constexpr double kLeastS = 0.5;

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double own_s() {
  double sum = 0;
  for (const int whose : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    if (getrusage(whose, &usage) == 0) sum += seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  }
  return sum;
}

std::vector<int> usable_processors() {
  cpu_set_t set;
  std::vector<int> usable;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return usable;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(processor, &set)) usable.push_back(processor);
  }
  return usable;
}

// The busy ticks in a line of /proc/stat, "cpu3 USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ..." (proc(5)): all but
// idle and waiting for devices. What follows (guests) is part of the first two.
double busy_ticks(std::istream& fields) {
  std::array<double, 8> ticks{};
  for (double& each : ticks) fields >> each;
  return std::accumulate(ticks.begin(), ticks.end(), 0.0) - ticks[3] - ticks[4];
}

}  // namespace

HostLoad::HostLoad()
    : processors_(usable_processors()),
      start_(std::chrono::steady_clock::now()),
      busy_at_start_s_(busy_s()),
      own_at_start_s_(own_s()) {}

std::optional<double> HostLoad::busy_s() const {
  std::ifstream file("/proc/stat");
  double ticks = 0;
  std::size_t found = 0;
  for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
    std::istringstream fields(line.substr(3));
    int processor = 0;
    if (line[3] == ' ' || !(fields >> processor)) continue;  // the sum of all
    if (!std::binary_search(processors_.begin(), processors_.end(), processor)) continue;
    ticks += busy_ticks(fields);
    ++found;
  }
  const long ticks_a_second = sysconf(_SC_CLK_TCK);
  if (found == 0 || found != processors_.size() || ticks_a_second <= 0) return std::nullopt;
  return ticks / static_cast<double>(ticks_a_second);
}

std::optional<double> HostLoad::others_share() const {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  const std::optional<double> busy = busy_s();
  if (!busy || !busy_at_start_s_ || elapsed.count() < kLeastS || started_processes() > 1) return std::nullopt;
  const double others = (*busy - *busy_at_start_s_) - (own_s() - own_at_start_s_);
  return std::clamp(others / (elapsed.count() * static_cast<double>(processors_.size())), 0.0, 1.0);
}

}  // namespace lockstep::core
