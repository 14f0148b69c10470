// A forward and backward of a tensor-parallel layer on one rank, with its collectives, and the times of its rounds.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/backends/mesh.h"
#include "collectives/collective.h"
#include "core/device.h"
#include "core/dtype.h"
#include "core/record.h"
#include "core/statistics.h"
#include "core/wait.h"
#include "kernels/base/view.h"
#include "schedules/step/step.h"

namespace lockstep::tp_linear {

// A rank's collectives among tensor-parallel ranks.

// All ranks must make them in the same order and run them in the same order, in one thread at a time. Equal operations
// share one collective.
class Exchanger {
 public:
  Exchanger(const backends::MeshRank& rank, std::size_t channel, std::string algorithm)
      : rank_(rank), channel_(channel), algorithm_(std::move(algorithm)) {}

  // All-gather: each rank's `from` into `to`. Reduce-scatter: a part of the sum of all ranks' `from` into each `to`.
  // All-reduce: in place, `from` and `to` are the same.
  std::function<void()> make(schedules::Comm comm, const kernels::InOut& from, const kernels::Out& to);
  // Takes an operation as given; a root is an index of members.
  std::function<void()> make(const collectives::Operation& operation, const void* input, void* output);

 private:
  collectives::Collective& prepared(const collectives::Operation& operation);

  const backends::MeshRank& rank_;
  const std::size_t channel_;
  const std::string algorithm_;
  std::map<std::tuple<collectives::Kind, core::DType, std::int64_t, int, bool>,
           std::unique_ptr<collectives::Collective>>
      prepared_;  // by block elements, root, and whether it is in place
};

// The forward or backward of a layer as a list of products, other kernels and exchanges, and the ways in which a rank
// runs it: only kernels, only exchanges, one task after the other, or exchanges overlapping with kernels, in a thread
// of their own or, on a GPU, a stream of their own.

enum class Direction : std::uint8_t { forward, backward };

inline constexpr int kNothing = -1;

// product: of matrices with its epilogue, or a block of attention
enum class TaskKind : std::uint8_t { product, other_kernel, exchange };
inline constexpr std::size_t kNumTaskKinds = 3;

struct Task {
  TaskKind kind = TaskKind::product;
  int after = kNothing;  // index of the last task of the other thread (exchanges or kernels) that it depends on
  std::function<void()> run;

  bool is_exchange() const { return kind == TaskKind::exchange; }
};

// Tasks in a valid sequential order; kernels always run in this order, as do exchanges.
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

// Time that a rank's own thread spent in tasks; overlapped exchanges do not count.
using Spent = std::array<double, kNumTaskKinds>;  // us, by kind

enum class Way : std::uint8_t { one_by_one, beside, kernels, exchanges };
inline constexpr int kNumWays = 4;

// Runs the passes of one rank; run() is called by the rank's own thread, on which kernels run.
class PassRunner {
 public:
  // `channel`: of the exchanges. If exchanges may not run in a thread of their own (MeshRank::threaded), they run one
  // by one; if work is queued, they run in the channel's stream, and times are the device's.
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
  std::exception_ptr failure_;  // error of the exchanges; read after exchanges_done_
  std::jthread thread_;
};

// The times of a layer's passes, which are run in all ways in every round.

// The round whose time is the median; of an even number of rounds, the shorter of the two in the middle.
std::size_t median_round(std::span<const double> samples_us);

class LayerTimes {
 public:
  // The next round's: time of the slowest rank, and where its own thread spent it.
  void add(Way way, Direction direction, double us, const Spent& spent);

  const std::vector<double>& samples(Way way, Direction direction) const { return of(way, direction).samples_us; }
  double median_us(Way way, Direction direction) const { return core::median(samples(way, direction)); }
  // Forward and backward together.
  double median_us(Way way) const { return median_us(way, Direction::forward) + median_us(way, Direction::backward); }
  std::vector<double> both(Way way) const;  // time of each round, forward and backward together
  // Exposed communication of each round: time beyond that of kernels alone, for a way that has both.
  std::vector<double> exposed(Way way, Direction direction) const;
  double exposed_us(Way way, Direction direction) const { return core::median(exposed(way, direction)); }
  const Spent& median_spent(Way way, Direction direction) const;  // in median_round()

  // For a layer's record (docs/record_format.md): forward and backward in each way.
  std::vector<core::LayerTimeRecord> records() const;

 private:
  struct Rounds {
    std::vector<double> samples_us;
    std::vector<Spent> spent_us;
  };
  const Rounds& of(Way way, Direction direction) const {
    return rounds_[static_cast<std::size_t>(way)][static_cast<std::size_t>(direction)];
  }

  std::array<std::array<Rounds, 2>, kNumWays> rounds_;  // [way][direction]
};

}  // namespace lockstep::tp_linear
