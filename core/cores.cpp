#include "core/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace lockstep::core {

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));  // more cores than the set can hold
}

int present_core() {
  return sched_getcpu();
}

CoreBinding::CoreBinding(int index) {
  static_assert(sizeof before_ == sizeof(cpu_set_t), "a set of the same size");
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  std::memcpy(before_, &allowed, sizeof before_);
  int skip = index % CPU_COUNT(&allowed);
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || skip-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    bound_ = sched_setaffinity(0, sizeof one, &one) == 0;
    return;
  }
}

CoreBinding::~CoreBinding() {
  if (bound_) sched_setaffinity(0, sizeof before_, reinterpret_cast<const cpu_set_t*>(before_));
}

}  // namespace lockstep::core
