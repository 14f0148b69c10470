// Where kernels are timed: a device with its own clock, and copies of a kernel's operands in its memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/device.h"
#include "kernels/base/context.h"
#include "kernels/base/kernel_case.h"

namespace lockstep::kernel_bench {

// A device on which kernels are timed: the CPU with a pool of pinned threads, or a CUDA device, each with its own
// clock.

// For one thread at a time: the one that made it. The device must outlive it.
class TimedDevice {
 public:
  virtual ~TimedDevice() = default;
  virtual const kernels::Context& context() const = 0;
  virtual void wait() = 0;  // waits until all work is done
  // Returns the time of this many sequential calls.
  virtual double us_of(std::int64_t calls, const std::function<void()>& call) = 0;
  virtual std::vector<int> cores() = 0;  // cores that run the threads right now; empty on a GPU
};

// The threads are pinned to the usable core `first_core` and the ones after it.
std::unique_ptr<TimedDevice> make_timed_cpu(int threads, int first_core = 0);

// Kernels to use where there are several sets (attention.h, grouped_gemm.h); empty: the default.
struct CudaChoices {
  std::string attention;
  std::string experts;
};

// `timing`: "events", or "graph": the calls are captured into a CUDA graph, whose replay is timed.
std::unique_ptr<TimedDevice> make_timed_cuda(core::Device& device, const std::string& timing,
                                             const CudaChoices& choices = {});

std::unique_ptr<core::Device> make_device(const std::string& name, std::chrono::seconds timeout);  // "cpu", "cuda"
std::vector<std::string> timings_of(const std::string& device);  // {"host"}, {"events", "graph"}

// The bytes of its operands that a kernel touches.

// If a kernel declares fewer bytes than its operands have, it touches only a part of the largest operand: the rows of a
// table that tokens name, or a third of each row of a fused query-key-value activation. Returns the maximum number of
// bytes touched per operand, such that their sum is the declared number.
double most_touched_bytes(const kernels::KernelCase& kernel_case);

// Bytes of all operands, once each, as far as they are touched.
double footprint_bytes(const kernels::KernelCase& kernel_case);

// True if an operand's elements are integers that name rows of another operand.
bool names_rows(const kernels::Draw& draw);
// True if integers of the case determine which rows of its largest operand are touched, so that other integers touch
// other rows.
bool names_rows(const kernels::KernelCase& kernel_case);

// A case's operands in a device's memory, once or in many copies, so that each call can use operands that no cache
// holds.

// Memory that is kept from case to case, because allocating a gigabyte takes long.
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

// Returns a case's inputs as its checks use them, each pattern as long as its operand.
Patterns exact_patterns(const kernels::KernelCase& kernel_case, std::uint64_t seed);
// For operands that would take long to draw: numbers of the same kinds that repeat every 2^18 elements; inputs that
// follow from others are not derived.
Patterns short_patterns(const kernels::KernelCase& kernel_case, std::uint64_t seed);

class OperandSets {
 public:
  // Makes as many sets as together touch `least_bytes`, at least one, all with the same content; uses the arena during
  // its lifetime. Exception: if a set touches only those rows of a table that its integers name, there is one table,
  // and the integers of each set name other rows: sets with their own tables would fill the machine before the touched
  // rows exceed its caches.
  OperandSets(Arena& arena, const kernels::KernelCase& kernel_case, const Patterns& patterns, double least_bytes);

  std::size_t number() const { return number_; }
  // Returns the operands for the next call, in the case's order. Consecutive sets are far apart in memory, so that
  // nothing is prefetched for the next call.
  std::span<void* const> next();

 private:
  struct Slot {
    std::size_t offset;      // in the shared part, or in a set
    bool is_shared = false;  // by all sets
  };
  void place_operands(const kernels::KernelCase& kernel_case);
  void fill_set(core::Device& device, std::size_t set, const kernels::KernelCase& kernel_case,
                const Patterns& patterns);
  std::byte* address(const Slot& slot, std::size_t set) const;

  std::vector<Slot> slots_;
  std::size_t shared_bytes_ = 0;
  std::size_t set_bytes_ = 0;
  std::size_t number_ = 1;
  std::size_t step_ = 1;  // distance from set to set; has no divisor in common with the number of sets
  std::size_t present_ = 0;
  std::byte* memory_ = nullptr;
  std::vector<void*> pointers_;
};

}  // namespace lockstep::kernel_bench
