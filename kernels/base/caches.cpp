#include "kernels/base/caches.h"

#include <unistd.h>

#include <algorithm>

namespace lockstep::kernels {

Caches::Caches(int num_threads) {
  constexpr long kLeastBytes = 1 << 20;  // if the system does not report it
  const long level2_bytes = std::max(::sysconf(_SC_LEVEL2_CACHE_SIZE), kLeastBytes);
  own_bytes_ = static_cast<std::size_t>(level2_bytes) * static_cast<std::size_t>(num_threads);
  const long level3_bytes = std::max(::sysconf(_SC_LEVEL3_CACHE_SIZE), 0L);
  all_bytes_ = std::max(own_bytes_, static_cast<std::size_t>(level3_bytes) / 2);
}

}  // namespace lockstep::kernels
