#include "testing/cuda_stand_in/runtime.h"

#include <driver_types.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <utility>

#include "testing/cuda_stand_in/refused.h"

namespace lockstep::cuda_stand_in {

ThreadState& this_thread() {
  thread_local ThreadState state;
  return state;
}

Runtime& Runtime::get() {
  static Runtime& runtime = *new Runtime;
  return runtime;
}

Runtime::Runtime() {
  const char* const gpus = std::getenv("LOCKSTEP_STAND_IN_GPUS");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  if (gpus != nullptr) num_devices_ = std::max(1, std::atoi(gpus));
  std::atexit([] { get().report(); });
}

// A line for each launch that was refused, and one that counts all launches, for ci/gpu_dry_run.sh.
void Runtime::report() const {
  const char* const path = std::getenv("LOCKSTEP_STAND_IN_REPORT");  // NOLINT(concurrency-mt-unsafe)
  if (path == nullptr) return;
  std::ofstream file(path, std::ios::app);
  for (const auto& [why, times] : refusals_) file << "refused " << times << " x " << why << '\n';
  file << "launched " << streams.num_launches() << '\n';
}

void Runtime::count_refusal(const std::string& call, const std::string& why) {
  ++refusals_[call + ": " + why];
}

void Runtime::install(Executor* executor) {
  auto held = lock();
  if (fault == 0) wait(held, [this] { return streams.idle(); });
  held.unlock();
  gpu_ = {};  // asks the thread to stop and waits for it
  held.lock();
  executor_ = executor;
  kernels.forget_facts();
  fault = 0;
  memory.announce_all();
  held.unlock();
  if (executor != nullptr) gpu_ = std::jthread([this](const std::stop_token& stop) { be_the_gpu(stop); });
}

void Runtime::advance() {
  if (executor_ == nullptr) {
    streams.advance(nullptr);
  } else {
    work_.notify_all();
  }
}

void Runtime::be_the_gpu(const std::stop_token& stop) {
  auto held = lock();
  while (!stop.stop_requested()) {
    try {
      step(held);
    } catch (const std::exception& error) {
      if (!held.owns_lock()) held.lock();
      fault = cudaErrorLaunchFailure;
      fault_text = error.what();
      streams.abandon();
    }
    progress_.notify_all();
    if (!streams.any_running()) {
      work_.wait(held, stop, [this] { return fault == 0 && (!streams.idle() || memory.has_events()); });
    }
  }
}

// Begins what can begin, then lets the kernels run for a while.
void Runtime::step(std::unique_lock<std::mutex>& lock) {
  streams.advance(executor_);
  if (!streams.any_running()) return;
  progress_.notify_all();
  lock.unlock();
  const std::vector<std::uint64_t> ended = executor_->run();
  lock.lock();
  for (const std::uint64_t number : ended) streams.kernel_ended(number);
}

void Runtime::wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done) {
  constexpr std::chrono::minutes kPatience{1};
  if (executor_ == nullptr) streams.advance(nullptr);
  const bool in_time = progress_.wait_for(lock, executor_ == nullptr ? std::chrono::minutes(0) : kPatience,
                                          [&] { return fault != 0 || done(); });
  if (fault != 0) throw Refused(fault, fault_text);
  if (!in_time) throw Refused(cudaErrorLaunchTimeout, "a call waited a minute for work that does not end");
}

void Runtime::give_way(std::unique_lock<std::mutex>& lock) {
  if (executor_ != nullptr) progress_.wait_for(lock, std::chrono::microseconds(200));
}

void install(Executor* executor) {
  Runtime::get().install(executor);
}

void describe(const DescribedGpu& gpu) {
  Runtime& runtime = Runtime::get();
  const auto held = runtime.lock();
  runtime.described = gpu;
}

std::optional<Memory> memory_at(std::uintptr_t address) {
  Runtime& runtime = Runtime::get();
  const auto held = runtime.lock();
  return runtime.memory.at(address);
}

std::string last_refusal() {
  return this_thread().refusal;
}

void keep_launches(bool keep) {
  Runtime& runtime = Runtime::get();
  const auto held = runtime.lock();
  runtime.streams.keeps_launches = keep;
}

std::vector<Launch> kept_launches() {
  Runtime& runtime = Runtime::get();
  const auto held = runtime.lock();
  return runtime.streams.launches;
}

void forget_launches() {
  Runtime& runtime = Runtime::get();
  const auto held = runtime.lock();
  runtime.streams.launches.clear();
}

}  // namespace lockstep::cuda_stand_in
