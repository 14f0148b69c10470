// A case's operands in a device's memory, once or many times over, so that each call can meet operands that no cache
// holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/device.h"
#include "kernels/base/kernel_case.h"

namespace lockstep::kernel_bench {

// Memory that is kept from case to case, as getting a gigabyte from the system takes long.
class Arena {
 public:
  explicit Arena(core::Device& device) : device_(device) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  std::byte* at_least(std::size_t size_bytes);
  core::Device& device() const { return device_; }

 private:
  core::Device& device_;
  std::byte* memory_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// What each operand's memory is filled with, over and over; in the operand's dtype.
using Patterns = std::vector<std::vector<std::byte>>;  // [operand]

// A case's inputs as its checks have them, each pattern as long as its operand.
Patterns exact_patterns(const kernels::KernelCase& one, std::uint64_t seed);
// For operands that would take long to draw: numbers of the same kinds, the same every 2^18 elements; inputs that
// follow from others do not.
Patterns short_patterns(const kernels::KernelCase& one, std::uint64_t seed);

class OperandSets {
 public:
  // As many sets as reach `least_bytes`, and one at least, all with the same content. Uses the arena until it goes.
  OperandSets(Arena& arena, const kernels::KernelCase& one, const Patterns& patterns, double least_bytes);

  std::size_t number() const { return number_; }
  // The operands for the next call, in the case's order. Neighbours in time are far apart in memory, so that nothing
  // fetches a set ahead of its call.
  std::span<void* const> next();

 private:
  std::vector<std::size_t> offsets_;  // of operands in a set
  std::size_t set_bytes_ = 0;
  std::size_t number_ = 1;
  std::size_t step_ = 1;  // from set to set; has no divisor in common with the number of sets
  std::size_t present_ = 0;
  std::byte* memory_ = nullptr;
  std::vector<void*> pointers_;
};

}  // namespace lockstep::kernel_bench
