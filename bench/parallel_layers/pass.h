// The forward or backward of a layer as a list of products, other kernels and exchanges, and the ways in which a rank
// runs it: kernels or exchanges alone, one task after the other, or exchanges concurrently with kernels, in a thread
// or, on a GPU, a stream of their own.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "collectives/backends/mesh.h"
#include "core/device.h"
#include "core/gate.h"
#include "core/wait.h"

namespace lockstep::layer_bench {

inline constexpr int kNothing = -1;

enum class TaskKind : std::uint8_t { product, other_kernel, exchange };  // product: of matrices, with its epilogue
inline constexpr std::size_t kNumTaskKinds = 3;

struct Task {
  TaskKind kind = TaskKind::product;
  int after =
      kNothing;  // the last task that it needs of the other thread's (exchange or not), by its place in the list
  std::function<void()> run;

  bool is_exchange() const { return kind == TaskKind::exchange; }
};

// Tasks in an order in which they may run one after the other; kernels always run in this order, as do exchanges.
class Pass {
 public:
  int add(TaskKind kind, std::function<void()> run, int after = kNothing) {
    tasks_.push_back({kind, after, std::move(run)});
    return static_cast<int>(tasks_.size()) - 1;
  }
  const std::vector<Task>& tasks() const { return tasks_; }

 private:
  std::vector<Task> tasks_;
};

// Time that a rank's own thread spent in tasks; of exchanges that run beside it, none.
using Spent = std::array<double, kNumTaskKinds>;  // us, by kind

enum class Way : std::uint8_t { one_by_one, beside, kernels, exchanges };
inline constexpr int kNumWays = 4;

// Runs the passes of one rank; run() is called by its own thread, on which kernels run.
class PassRunner {
 public:
  // `channel`: of the exchanges. Where exchanges may not run in a thread of their own (MeshRank::threaded) they run one
  // by one; where work is queued, in the channel's stream beside that of kernels, and times are the device's.
  PassRunner(backends::MeshRank& rank, std::size_t channel, const core::WaitPolicy& policy);
  ~PassRunner();
  PassRunner(const PassRunner&) = delete;
  PassRunner& operator=(const PassRunner&) = delete;

  Spent run(const Pass& pass, Way way);

 private:
  Spent run_beside(const Pass& pass);
  Spent run_queued(const Pass& pass, Way way);
  Spent run_kind(const Pass& pass, bool exchanges);
  void wait(core::Gate& gate, std::uint64_t target) const;
  void exchange_thread();
  void fail();  // raises what is being thrown

  backends::MeshRank& rank_;
  core::Stream* const exchanges_;  // where work is queued
  core::WaitPolicy policy_;
  std::vector<std::unique_ptr<core::Event>> task_starts_, task_ends_;  // likewise
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
