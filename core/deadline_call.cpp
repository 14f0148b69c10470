#include "core/deadline_call.h"

#include <future>
#include <thread>
#include <utility>

namespace lockstep::core {

bool returns_in_time(std::function<void()> call, std::chrono::nanoseconds timeout) {
  std::packaged_task<void()> task(std::move(call));
  std::future<void> result = task.get_future();
  std::thread(std::move(task)).detach();
  if (result.wait_for(timeout) != std::future_status::ready) return false;
  result.get();
  return true;
}

}  // namespace lockstep::core
