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
  std::byte* at_least(std::size_t wanted_bytes);
  core::Device& device() const { return device_; }

 private:
  core::Device& device_;
  std::byte* memory_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// The values that each operand's memory is filled with, over and over; in the operand's dtype.
using Patterns = std::vector<std::vector<std::byte>>;  // [operand]

// A case's inputs as its checks have them, each pattern as long as its operand.
Patterns exact_patterns(const kernels::KernelCase& one, std::uint64_t seed);
// For operands that would take long to draw: numbers of the same kinds, the same every 2^18 elements; inputs that
// follow from others do not.
Patterns short_patterns(const kernels::KernelCase& one, std::uint64_t seed);

class OperandSets {
 public:
  // As many sets as touch `least_bytes` together, and one at least, all with the same content; uses the arena until it
  // goes. But a table of which a set touches the rows that its integers name is there once, and the integers of each
  // set name other rows: sets with tables of their own would fill the machine before the rows are past its caches.
  OperandSets(Arena& arena, const kernels::KernelCase& one, const Patterns& patterns, double least_bytes);

  std::size_t number() const { return number_; }
  // The operands for the next call, in the case's order. Neighbours in time are far apart in memory, so that nothing
  // fetches a set ahead of its call.
  std::span<void* const> next();

 private:
  struct Slot {
    std::size_t offset;      // in the shared part, or in a set
    bool is_shared = false;  // among all sets
  };
  void place_operands(const kernels::KernelCase& one);
  void fill_set(core::Device& device, std::size_t set, const kernels::KernelCase& one, const Patterns& patterns);
  std::byte* address(const Slot& slot, std::size_t set) const;

  std::vector<Slot> slots_;
  std::size_t shared_bytes_ = 0;
  std::size_t set_bytes_ = 0;
  std::size_t number_ = 1;
  std::size_t step_ = 1;  // from set to set; has no divisor in common with the number of sets
  std::size_t present_ = 0;
  std::byte* memory_ = nullptr;
  std::vector<void*> pointers_;
};

}  // namespace lockstep::kernel_bench
