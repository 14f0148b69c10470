// The forward or backward of a layer as a list of kernels and exchanges, and the ways in which a rank runs it: one
// kind alone, one task after the other, or exchanges in a thread of their own beside the kernels.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/gate.h"

namespace lockstep::layer_bench {

inline constexpr int kNothing = -1;

struct Task {
  bool is_exchange = false;
  int after = kNothing;  // the last task of the other kind that it needs, by its place in the list
  std::function<void()> run;
};

// Tasks in an order in which they may run one after the other; those of one kind always run in this order.
class Pass {
 public:
  int add_kernel(std::function<void()> run, int after = kNothing) { return add({false, after, std::move(run)}); }
  int add_exchange(std::function<void()> run, int after = kNothing) { return add({true, after, std::move(run)}); }
  const std::vector<Task>& tasks() const { return tasks_; }

 private:
  int add(Task task) {
    tasks_.push_back(std::move(task));
    return static_cast<int>(tasks_.size()) - 1;
  }
  std::vector<Task> tasks_;
};

enum class Way : std::uint8_t { one_by_one, beside, kernels, exchanges };
inline constexpr int kNumWays = 4;

// Of one rank; run() is called by its own thread, on which kernels run.
class PassRunner {
 public:
  PassRunner(int rank, core::AbortFlag& abort, const core::WaitPolicy& policy);
  ~PassRunner();
  PassRunner(const PassRunner&) = delete;
  PassRunner& operator=(const PassRunner&) = delete;

  void run(const Pass& pass, Way way);

 private:
  void run_beside(const Pass& pass);
  void run_kind(const Pass& pass, bool exchanges);
  void wait(core::Gate& gate, std::uint64_t target) const;
  void exchange_thread();
  void fail();  // raises what is being thrown

  int rank_;
  core::AbortFlag& abort_;
  core::WaitPolicy policy_;
  core::Gate kernels_done_;    // number of the pass << 32 | tasks of the list that are done, up to the kind's last
  core::Gate exchanges_done_;  // likewise
  std::mutex mutex_;
  std::condition_variable started_;
  const Pass* pass_ = nullptr;  // under mutex_
  std::uint64_t number_ = 0;    // of the pass; under mutex_
  bool ends_ = false;           // under mutex_
  std::exception_ptr failure_;  // of the exchanges; read behind exchanges_done_
  std::jthread thread_;
};

}  // namespace lockstep::layer_bench
