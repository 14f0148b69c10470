// A benchmark for testing the regression gate: three cases whose slowdown is known, as it is planted
// (bench/serve/planted_calls.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/device.h"

namespace lockstep::gate {

// A call reads the next 256 KiB of 32 MiB, which no core's own cache holds; or multiplies and adds in
// registers, about as long. Nothing is shared between threads.
class MemoryCase {
 public:
  explicit MemoryCase(core::Device& device);
  ~MemoryCase();
  MemoryCase(const MemoryCase&) = delete;
  MemoryCase& operator=(const MemoryCase&) = delete;
  void call();
  double result() const { return static_cast<double>(sum_); }

 private:
  core::Device& device_;
  std::uint64_t* const words_;
  std::size_t next_ = 0;
  std::uint64_t sum_ = 0;
};

class ComputeCase {
 public:
  void call();
  double result() const { return value_; }

 private:
  double value_ = 1;
};

// Serves "memory" and "compute" from one thread, or "collective": an all-reduce of 64 KiB among two ranks, threads over
// shared memory. Returns the exit status.
int serve_planted(const std::string& which);

}  // namespace lockstep::gate
