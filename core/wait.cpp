#include "core/wait.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>
#include <future>
#include <thread>
#include <utility>

namespace lockstep::core {

void futex_wait(const void* word, std::uint32_t expected, std::chrono::nanoseconds longest) {
  timespec span{};
  span.tv_sec = static_cast<time_t>(longest.count() / 1'000'000'000);
  span.tv_nsec = static_cast<long>(longest.count() % 1'000'000'000);
  // FUTEX_PRIVATE_FLAG is not set: the word may be in memory that processes share.
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &span, nullptr, 0);
}

void futex_wake_all(const void* word) {
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool returns_in_time(std::function<void()> call, std::chrono::nanoseconds timeout) {
  std::packaged_task<void()> task(std::move(call));
  std::future<void> result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(timeout) != std::future_status::ready) return false;
  result.get();
  return true;
}

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
