// Waiting: the deadlines without which nothing in Lockstep waits, and the gates on which ranks wait for each other.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "core/error.h"

namespace lockstep::core {

using Clock = std::chrono::steady_clock;

inline double us_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - start).count();
}

class Deadline {
 public:
  static Deadline after(std::chrono::nanoseconds span) { return Deadline(Clock::now() + span); }
  bool passed() const { return Clock::now() >= at_; }
  Clock::time_point at() const { return at_; }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

// How long to pause between polls if polling costs others something: a GPU's driver has locks that the launches of
// other ranks need.

// Starts timing when it is made. After each unsuccessful poll, pause() waits for 1/32 of the time waited so far, at
// most 100 us, so that completion is seen at most 3 % of the wait late.
class Backoff {
 public:
  static constexpr std::chrono::microseconds kLongest{100};
  static std::chrono::nanoseconds pause_after(std::chrono::nanoseconds waited) {
    return std::min<std::chrono::nanoseconds>(waited / 32, kLongest);
  }

  // Yields for short pauses: the system wakes a sleeping thread about 50 us late.
  void pause() const {
    const Clock::time_point now = Clock::now();
    const auto span = pause_after(now - start_);
    if (span >= kLongest) return std::this_thread::sleep_for(span);
    do {
      std::this_thread::yield();
    } while (Clock::now() < now + span);
  }

 private:
  Clock::time_point start_ = Clock::now();
};

// Sleeping on an address that several ranks, threads or processes, can see (Linux futex).

// Sleeps while *word == expected, until woken, or for at most `longest`. May return early.
void futex_wait(const void* word, std::uint32_t expected, std::chrono::nanoseconds longest);
void futex_wake_all(const void* word);

// Deadlines for calls of other libraries that have no timeout.

// Runs the call on a thread of its own and waits for it. Returns true if the call has returned; what it threw is
// rethrown here. Returns false at the timeout; the call then continues on its thread, so everything that it uses must
// be owned by it or shared with it.
bool returns_in_time(std::function<void()> call, std::chrono::nanoseconds timeout);

// Gates: numbers that only grow, on which ranks wait. They live in memory that all ranks of a process group share, and
// are the only means of synchronisation of the local executor.
//
// A rank that waits spins briefly if every rank has a core of its own, then yields its core to a rank that may open the
// gate, and finally sleeps on the gate's address. Every wait has a deadline and looks at the abort flag.

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
  // thread is woken and runs (256 KiB all-reduce during compute on two cores: 50 us instead of 5 ms).
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
