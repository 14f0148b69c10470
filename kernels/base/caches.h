// Sizes of the machine's caches, by which kernels choose between ordinary and non-temporal stores.
#pragma once

#include <cstddef>

namespace lockstep::kernels {

// Made once per pool by ThreadPool::kept(), because querying the system takes many microseconds in a virtual machine.
class Caches {
 public:
  explicit Caches(int num_threads);
  // For tests: as on a machine with caches of this size.
  static Caches of_bytes(std::size_t own_bytes) { return Caches(own_bytes); }
  // Returns whether an output of this size should be written with non-temporal stores: if it is larger than the L2
  // caches of the pool's threads. A line that is written whole then need not be read first. Two threads on Sapphire
  // Rapids, y = a + b, GB/s with ordinary and with non-temporal stores: 129 and 93 at 1 MB per operand, 56 and 70 at 4
  // MB, 31 and 39 at 50 MB.
  bool outgrown_by(std::size_t output_bytes) const { return output_bytes > own_bytes_; }
  // The same for an output that is read again soon: if it is larger than half of the L3 cache, of which other programs
  // use the rest. One thread on Zen 3, 2^20 codes to f32: 205 us with non-temporal stores, 95 us into the L3 cache.
  bool all_outgrown_by(std::size_t output_bytes) const { return output_bytes > all_bytes_; }

 private:
  explicit Caches(std::size_t own_bytes) : own_bytes_(own_bytes), all_bytes_(own_bytes) {}

  std::size_t own_bytes_;
  std::size_t all_bytes_;
};

}  // namespace lockstep::kernels
