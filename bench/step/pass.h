// A forward or backward of a part of a step on one rank: its tasks, the modes in which a rank runs them, and the
// collectives of its exchanges.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/backends/mesh.h"
#include "collectives/collective.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/wait.h"

namespace lockstep::step_bench {

// How a rank runs a pass: serially; with exchanges that overlap with kernels; kernels or exchanges
// alone.
enum class Mode : std::uint8_t { serial, overlapped, kernels, exchanges };
inline constexpr std::size_t kNumModes = 4;
constexpr bool is_whole(Mode mode) {
  return mode == Mode::serial || mode == Mode::overlapped;
}

enum class Direction : std::uint8_t { forward, backward };
inline constexpr std::array kDirections{Direction::forward, Direction::backward};
constexpr const char* name_of(Direction direction) {
  return direction == Direction::forward ? "forward" : "backward";
}

// A rank's collectives among the members of a channel. All ranks must make them in the same order and run them in the
// same order, in one thread at a time. Equal operations share one collective.
class Exchanger {
 public:
  Exchanger(const backends::MeshRank& rank, std::size_t channel, std::string algorithm)
      : rank_(rank), channel_(channel), algorithm_(std::move(algorithm)) {}

  // Takes an operation as given; a root is an index of members.
  std::function<void()> make(const collectives::Operation& operation, const void* input, void* output);
  // Prepares the operation on its first run. nullptr: this rank has nothing to send, or nothing to receive.
  void run(const collectives::Operation& operation, const void* input, void* output);
  // `algorithm` of the operation, instead of the exchanger's.
  collectives::Collective& prepared(const collectives::Operation& operation, const std::string& algorithm);

 private:
  collectives::Collective& prepared(const collectives::Operation& operation);

  const backends::MeshRank& rank_;
  const std::size_t channel_;
  const std::string algorithm_;
  std::byte nothing_{};  // placeholder buffer
  // By block elements, root, whether it is in place, and the elements of pairs.
  std::map<std::tuple<collectives::Kind, core::DType, std::int64_t, int, bool, std::vector<std::int64_t>>,
           std::unique_ptr<collectives::Collective>>
      prepared_;
};

inline constexpr int kNothing = -1;

// A rank's time is split by the kind of its tasks, or by up to kMostShares shares that a part of a step names.
// product: of matrices with its epilogue, or a block of attention
enum class TaskKind : std::uint8_t { product, other_kernel, exchange };
inline constexpr std::array kKindShares{"products", "other_kernels", "communication"};  // in the order of TaskKind
inline constexpr std::size_t kMostShares = 8;
using Spent = std::array<double, kMostShares>;  // us, by share

struct Task {
  bool is_exchange = false;
  std::size_t share = 0;  // the part of the rank's time to which its time is added
  int after = kNothing;   // index of the last task of the other thread (exchanges or kernels) that it depends on
  std::function<void()> run;
};

// Tasks in a valid sequential order; kernels always run in this order, as do exchanges.
class Pass {
 public:
  int add(bool is_exchange, std::size_t share, std::function<void()> run, int after) {
    tasks_.push_back({is_exchange, share, after, std::move(run)});
    return static_cast<int>(tasks_.size()) - 1;
  }
  const std::vector<Task>& tasks() const { return tasks_; }

 private:
  std::vector<Task> tasks_;
};

// Runs the passes of one rank; run() is called by the rank's own thread, on which kernels run.
class PassRunner {
 public:
  // `channel`: of the exchanges. If exchanges may not run in a thread of their own (MeshRank::threaded), they run one
  // by one; if work is queued, they run in the channel's stream, and times are the device's.
  PassRunner(backends::MeshRank& rank, std::size_t channel, const core::WaitPolicy& policy);
  ~PassRunner();
  PassRunner(const PassRunner&) = delete;
  PassRunner& operator=(const PassRunner&) = delete;

  Spent run(const Pass& pass, Mode mode);  // the time in its tasks, of both threads

 private:
  Spent run_overlapped(const Pass& pass);
  Spent run_queued(const Pass& pass, Mode mode);
  Spent run_thread(const Pass& pass, bool exchanges);
  void wait(core::Gate& gate, std::uint64_t target) const;
  void exchange_thread();
  void fail();  // rethrows the exception

  backends::MeshRank& rank_;
  core::Stream* const exchanges_;  // if work is queued
  core::WaitPolicy policy_;
  std::vector<std::unique_ptr<core::Event>> task_starts_, task_ends_;  // likewise
  core::Gate kernels_done_;    // number of the pass << 32 | number of tasks done, up to the last of the kind
  core::Gate exchanges_done_;  // likewise
  std::mutex mutex_;
  std::condition_variable started_;
  const Pass* pass_ = nullptr;  // guarded by mutex_
  std::uint64_t number_ = 0;    // number of the pass; guarded by mutex_
  bool ends_ = false;           // guarded by mutex_
  Spent spent_in_exchanges_{};  // read after exchanges_done_
  std::exception_ptr failure_;  // likewise: error of the exchanges
  std::jthread thread_;
};

}  // namespace lockstep::step_bench
