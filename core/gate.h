// Gates: numbers that only grow, on which ranks wait. They live in memory that all ranks of a process group share, and
// are the only means of synchronisation of the local executor.
//
// A rank that waits spins briefly if every rank has a core of its own, then yields its core to a rank that may open the
// gate, and finally sleeps on the gate's address. Every wait has a deadline and looks at the abort flag.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "core/wait.h"

namespace lockstep::core {

// Occupies its own pair of cache lines: the prefetcher of x86 fetches lines in pairs.
struct alignas(128) Gate {
  std::atomic<std::uint64_t> value{0};
  std::atomic<std::uint32_t> sleepers{0};

  // Pairs with open(): writes that the opener made before are visible once this returns true.
  bool reached(std::uint64_t target) const { return value.load(std::memory_order_acquire) >= target; }

  // Only one rank opens a gate. Sequentially consistent, against sleep(): either the opener sees the sleeper, or the
  // sleeper sees the new value (a store followed by a load from another address needs this order).
  void open(std::uint64_t new_value) {
    value.store(new_value, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) wake();
  }
  void wake() const;
  // Sleeps while the gate is below target, for at most `longest`.
  void sleep(std::uint64_t target, std::chrono::nanoseconds longest);
};

// Raised once by the first rank that fails; all other ranks see it in their waits. Lives in shared memory.
class AbortFlag {
 public:
  bool raised() const { return state_.load(std::memory_order_acquire) == kSet; }
  void raise(int rank, Failure failure, const std::string& message);
  [[noreturn]] void throw_raised() const;  // Error with the first failure's text
  int rank() const { return rank_; }

 private:
  static constexpr std::uint32_t kWriting = 1;
  static constexpr std::uint32_t kSet = 2;
  std::atomic<std::uint32_t> state_{0};
  int rank_ = -1;
  Failure failure_ = Failure::internal;
  std::array<char, 1024> message_{};
};

struct WaitPolicy {
  int spins;                                              // polls before the first yield
  std::chrono::microseconds yield_span;                   // time of yielding before the rank sleeps
  std::chrono::milliseconds deadline;                     // deadline of one wait
  bool yields() const { return yield_span.count() > 0; }  // otherwise it sleeps at once

  // No long spinning: with more ranks than cores, a rank yields its core at once.
  static WaitPolicy for_ranks(int num_ranks, int num_cores, std::chrono::milliseconds deadline);
  // For threads of which some compute while others wait. With more threads than cores, a wait sleeps at once: a thread
  // that yields to a computing thread runs again only after the latter's time slice, milliseconds later, but a sleeping
  // thread is woken and runs (256 KiB all-reduce beside compute on two cores: 50 us instead of 5 ms).
  static WaitPolicy beside_work(int num_threads, int num_cores, std::chrono::milliseconds deadline);
};

// One wait of one rank: call pause() until the condition holds.
class Waiter {
 public:
  Waiter(const WaitPolicy& policy, const AbortFlag& abort) : policy_(&policy), abort_(&abort) {}

  // Waits briefly for `gate` to reach `target`, longer from call to call. Returns false at the deadline. Throws the
  // abort flag's Error. `longest_sleep` limits the sleep of a caller that watches several gates at once.
  bool pause(Gate& gate, std::uint64_t target, std::chrono::nanoseconds longest_sleep = std::chrono::milliseconds(20));

 private:
  const WaitPolicy* policy_;
  const AbortFlag* abort_;
  int rounds_ = 0;
  Clock::time_point start_{};
};

}  // namespace lockstep::core
