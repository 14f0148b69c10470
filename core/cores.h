// The cores that this process may run on.
#pragma once

namespace lockstep::core {

int usable_cores();  // number of cores that the scheduler grants the calling thread
int present_core();  // system's number of the core that runs the calling thread right now; -1 if unknown

// Pins the calling thread to one core during its lifetime: number `index` of the usable cores, modulo their number.
// Best effort: if the system refuses, the thread is not pinned.
class CoreBinding {
 public:
  explicit CoreBinding(int index);
  ~CoreBinding();
  CoreBinding(const CoreBinding&) = delete;
  CoreBinding& operator=(const CoreBinding&) = delete;

 private:
  static constexpr unsigned kMostCores = 1024;  // as in glibc's cpu_set_t
  unsigned long before_[kMostCores / (8 * sizeof(unsigned long))] = {};
  bool bound_ = false;
};

}  // namespace lockstep::core
