#include "kernels/base/thread_pool.h"

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include "core/error.h"
#include "core/ranks.h"
#include "core/wait.h"

namespace lockstep::kernels {
namespace {

constexpr std::align_val_t kAlignment{128};
constexpr auto kDeadline = std::chrono::minutes(10);  // for one kernel; longer is a bug of ours

struct Scratch {
  std::byte* memory = nullptr;
  std::size_t size_bytes = 0;

  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { ::operator delete[](memory, kAlignment); }

  std::byte* at_least(std::size_t wanted_bytes) {
    if (wanted_bytes > size_bytes) {
      ::operator delete[](memory, kAlignment);
      memory = nullptr;
      size_bytes = 0;
      memory = static_cast<std::byte*>(::operator new[](wanted_bytes, kAlignment));
      size_bytes = wanted_bytes;
    }
    return memory;
  }
};

}  // namespace

struct ThreadPool::State {
  State(int num_threads, int first_core_index)
      : size(num_threads),
        first_core(first_core_index),
        policy(core::WaitPolicy::for_ranks(num_threads, core::usable_cores(), kDeadline)),
        finished(static_cast<std::size_t>(num_threads)),
        scratch(static_cast<std::size_t>(num_threads) + 1) {}

  void serve(int thread) {
    std::optional<core::CoreBinding> binding;
    if (first_core >= 0) binding.emplace(first_core + thread);
    for (std::uint64_t turn = 1;; ++turn) {
      await(started, turn, /*forever=*/true);
      if (stopping) return;
      work_as(thread);
      finished[static_cast<std::size_t>(thread)].open(turn);
    }
  }

  void work_as(int thread) {
    try {
      call(work, thread);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failure) failure = std::current_exception();
    }
  }

  // A thread without work waits indefinitely; the deadline applies to work itself.
  void await(core::Gate& gate, std::uint64_t target, bool forever) const {
    while (!gate.reached(target)) {
      core::Waiter waiter(policy, abort);
      while (!gate.reached(target) && waiter.pause(gate, target)) {
      }
      if (!forever && !gate.reached(target)) {
        throw core::Error(core::Failure::timeout, "a kernel's thread did not finish within 10 minutes");
      }
    }
  }

  const int size;
  const int first_core;
  const core::WaitPolicy policy;
  const core::AbortFlag abort;  // never raised: threads of a pool do not die
  core::Gate started;
  std::vector<core::Gate> finished;  // [thread]
  // Written before `started` opens, read after.
  void (*call)(void*, int) = nullptr;
  void* work = nullptr;
  bool stopping = false;
  std::uint64_t round = 0;
  std::mutex failure_mutex;
  std::exception_ptr failure;
  std::vector<Scratch> scratch;  // [0] is shared; [thread + 1]
  std::map<std::type_index, std::shared_ptr<void>> kept;
  std::optional<core::CoreBinding> caller_binding;
  std::vector<std::thread> threads;
};

ThreadPool::ThreadPool(int num_threads, int first_core) {
  LOCKSTEP_CHECK(num_threads >= 1, "a pool has at least one thread");
  state_ = std::make_unique<State>(num_threads, first_core);
  for (int thread = 1; thread < num_threads; ++thread) {
    state_->threads.emplace_back([state = state_.get(), thread] { state->serve(thread); });
  }
  if (first_core >= 0) state_->caller_binding.emplace(first_core);
}

ThreadPool::~ThreadPool() {
  state_->stopping = true;
  state_->started.open(++state_->round);
  for (std::thread& thread : state_->threads) thread.join();
}

int ThreadPool::size() const {
  return state_->size;
}

void ThreadPool::run(void (*call)(void*, int), void* work) {
  State& state = *state_;
  state.call = call;
  state.work = work;
  state.started.open(++state.round);
  state.work_as(0);
  for (int thread = 1; thread < state.size; ++thread) {
    state.await(state.finished[static_cast<std::size_t>(thread)], state.round, /*forever=*/false);
  }
  if (state.failure) std::rethrow_exception(std::exchange(state.failure, nullptr));
}

std::byte* ThreadPool::scratch(int thread, std::size_t size_bytes) {
  return state_->scratch.at(static_cast<std::size_t>(thread) + 1).at_least(size_bytes);
}

std::shared_ptr<void>& ThreadPool::kept_object(std::type_index type) {
  return state_->kept[type];
}

Caches::Caches(int num_threads) {
  constexpr long kLeastBytes = 1 << 20;  // if the system does not report it
  const long level2_bytes = std::max(::sysconf(_SC_LEVEL2_CACHE_SIZE), kLeastBytes);
  own_bytes_ = static_cast<std::size_t>(level2_bytes) * static_cast<std::size_t>(num_threads);
  const long level3_bytes = std::max(::sysconf(_SC_LEVEL3_CACHE_SIZE), 0L);
  all_bytes_ = std::max(own_bytes_, static_cast<std::size_t>(level3_bytes) / 2);
}

}  // namespace lockstep::kernels
