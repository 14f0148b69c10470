// The cores that this process may run on.
#pragma once

namespace lockstep::core {

int usable_cores();  // that the scheduler grants the calling thread
int present_core();  // the system's number of the core that the calling thread runs on right now; -1 if it is not told

// Keeps the calling thread on one core while it lives: number `index` of those usable, cyclically. Best effort: where
// the system refuses, the thread stays as it was.
class CoreBinding {
 public:
  explicit CoreBinding(int index);
  ~CoreBinding();
  CoreBinding(const CoreBinding&) = delete;
  CoreBinding& operator=(const CoreBinding&) = delete;

 private:
  static constexpr unsigned kMostCores = 1024;  // as glibc's cpu_set_t
  unsigned long before_[kMostCores / (8 * sizeof(unsigned long))] = {};
  bool bound_ = false;
};

}  // namespace lockstep::core
