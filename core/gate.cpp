#include "core/gate.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "core/wait.h"

namespace lockstep::core {
namespace {

// The half of a gate's value that changes with every opening, which a futex can compare.
const void* low_word(const std::atomic<std::uint64_t>& value) {
  static_assert(sizeof(value) == 8, "the gate's value is its 64 bits");
  return &value;  // little endian
}

void relax() {
  __builtin_ia32_pause();
}

}  // namespace

void Gate::wake() const {
  futex_wake_all(low_word(value));
}

void Gate::sleep(std::uint64_t target, std::chrono::nanoseconds longest) {
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  const std::uint64_t seen = value.load(std::memory_order_seq_cst);
  if (seen < target) futex_wait(low_word(value), static_cast<std::uint32_t>(seen), longest);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void AbortFlag::raise(int rank, Failure failure, const std::string& message) {
  std::uint32_t clear = 0;
  if (!state_.compare_exchange_strong(clear, kWriting)) return;
  rank_ = rank;
  failure_ = failure;
  const std::size_t length = std::min(message.size(), message_.size() - 1);
  std::memcpy(message_.data(), message.data(), length);
  message_[length] = '\0';
  state_.store(kSet, std::memory_order_release);
}

void AbortFlag::throw_raised() const {
  throw Error(failure_, message_.data());
}

WaitPolicy WaitPolicy::for_ranks(int num_ranks, int num_cores, std::chrono::milliseconds deadline) {
  const bool own_core = num_ranks <= num_cores;
  return {own_core ? 2000 : 0, std::chrono::microseconds(own_core ? 200 : 2000), deadline};
}

WaitPolicy WaitPolicy::beside_work(int num_threads, int num_cores, std::chrono::milliseconds deadline) {
  if (num_threads <= num_cores) return for_ranks(num_threads, num_cores, deadline);
  return {0, std::chrono::microseconds(0), deadline};
}

bool Waiter::pause(Gate& gate, std::uint64_t target, std::chrono::nanoseconds longest_sleep) {
  if (rounds_ < policy_->spins) {
    ++rounds_;
    relax();
    return true;
  }
  if (abort_->raised()) abort_->throw_raised();
  if (rounds_++ == policy_->spins) start_ = Clock::now();
  constexpr int kYieldsPerLook = 8;  // reading the clock costs a tenth of a yield
  if (policy_->yields() && (rounds_ - policy_->spins) % kYieldsPerLook != 0) {
    sched_yield();
    return true;
  }
  const auto waited = Clock::now() - start_;
  if (waited >= policy_->deadline) return false;
  if (waited < policy_->yield_span) {
    sched_yield();
  } else {
    rounds_ = policy_->spins + kYieldsPerLook - 1;  // from now on every call sleeps
    gate.sleep(target, longest_sleep);
  }
  return true;
}

}  // namespace lockstep::core
