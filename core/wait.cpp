#include "core/wait.h"

#include <sys/syscall.h>
#include <climits>
#include <ctime>
#include <future>
#include <thread>
#include <utility>

#include <linux/futex.h>
#include <unistd.h>

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

}  // namespace lockstep::core
