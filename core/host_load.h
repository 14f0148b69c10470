// How much of this host's processors other programs use while this one measures.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

namespace lockstep::core {

// Watches from its construction on: the processors that this process may use, by the system's count of their busy time
// (Linux, /proc/stat, which counts in hundredths of a second), and the processor time of this process and of children
// that it has waited for.
class HostLoad {
 public:
  HostLoad();

  // The share of the processors' time, 0 to 1, that other programs have had since then; a virtual machine's time that
  // its host gave to others ("steal") counts as theirs. Nothing under mpirun, whose ranks are other processes, after
  // less than half a second, which the system counts too coarsely, and where there is no such count.
  std::optional<double> others_share() const;

 private:
  // Busy seconds of the processors since the system started; nothing where the system does not count them.
  std::optional<double> busy_s() const;

  std::vector<int> processors_;
  std::chrono::steady_clock::time_point start_;
  std::optional<double> busy_at_start_s_;
  double own_at_start_s_;
};

}  // namespace lockstep::core
