// A device that works like a GPU, on the CPU: streams are threads that do what is queued later, at random, each in its
// order; memory comes from the pool that CUDA's does. Whether waits between streams make everything safe is also
// checked by clocks (order_checker.h), which finds what no run has happened to show. A graph has the calls
// that were made while a stream was captured, and makes them again when it is launched.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/memory_pool.h"
#include "core/random.h"
#include "core/wait.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "kernels/gemm/gemm.h"
#include "testing/core/forwarding_device.h"
#include "testing/trainer/order_checker.h"

namespace lockstep::trainer {

struct QueuedOptions {
  bool threads = true;  // otherwise queued work runs at once: only the clocks show
  std::uint64_t seed = 1;
  double late = 0.6;  // without threads: how often the host looks too early
};

// A point in a stream that has been recorded; of each record a new one.
struct QueuedMark {
  std::atomic<bool> passed{false};
  core::Clock::time_point at = {};
  OrderChecker::Clock clock = {};
  bool captured = false;  // no point in time: between calls that are recorded
};

class QueuedStream;

// The captured calls: those that were made, on the stream where it began and on those that have waited for it since.
struct QueuedCapture {
  std::vector<QueuedStream*> streams;
  std::vector<std::function<void()>> calls;

  bool has(const QueuedStream& stream) const {
    return std::find(streams.begin(), streams.end(), &stream) != streams.end();
  }
};

// State that a device and its streams share.
struct QueuedState {
  explicit QueuedState(const QueuedOptions& from) : options(from), random(from.seed) {}
  const QueuedOptions options;
  core::Random random;  // used by the host's thread
  OrderChecker checker;
  std::string label = "outside";  // of the task at hand
  int waits = 0;                  // waits of streams for events, that were to be queued
  int left_out = -1;              // the one that is not: a fault
  int takings = 0;                // allocations of device memory and of page-locked memory
  std::atomic<bool> failed{false};
  std::optional<QueuedCapture> capture = {};
  int captures = 0;  // so far

  // Fails: no stream may be asked for this while one is captured.
  void forbid_in_capture(const std::string& what) const {
    if (capture) throw core::Error(core::Failure::cuda, label + ": " + what + " in a capture");
  }

  // Whether the host sees that a point is passed: it may look too early.
  bool sees(const QueuedMark& mark) {
    if (mark.captured) forbid_in_capture("a look at an event");
    if (!mark.passed || (!options.threads && random.uniform() < options.late)) return false;
    checker.wait(0, mark.clock);
    return true;
  }
};

class QueuedStream final : public core::Stream {
 public:
  using Work = std::function<void(kernels::ThreadPool&)>;
  QueuedStream(QueuedState& state, core::MemoryPool& pool)
      : state_(state),
        pool_of_memory_(pool),
        agent_(state.checker.add_stream()),
        random_(state.options.seed * 131 + agent_) {
    pool_of_memory_.add_stream(*this);
    if (state_.options.threads) thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
  }

  ~QueuedStream() override { pool_of_memory_.remove_stream(*this); }
  QueuedStream(const QueuedStream&) = delete;
  QueuedStream& operator=(const QueuedStream&) = delete;

  void queue(const std::string& what, const std::vector<MemoryUse>& uses, Work work) {
    queue_as(state_.label + " " + what, uses, std::move(work));
  }
  // Memory changes hands here.
  void hand_over(const std::string& what, void* memory, std::size_t size_bytes) {
    state_.checker.work(agent_, state_.label + " " + what, {{memory, size_bytes, true}});
  }
  std::shared_ptr<QueuedMark> record() {
    auto mark = std::make_shared<QueuedMark>();
    mark->clock = state_.checker.now(agent_);
    mark->captured = is_captured();
    if (mark->captured) return mark;
    push([mark](kernels::ThreadPool&) {
      mark->at = core::Clock::now();
      mark->passed = true;
    });
    return mark;
  }

  void synchronize() override {
    state_.forbid_in_capture("synchronize");
    state_.checker.wait(0, finish()->clock);
  }
  // All that was queued is done; for what is no wait of the program's.
  std::shared_ptr<QueuedMark> finish() {
    auto mark = record();
    while (!mark->passed) pause();
    throw_failed();
    return mark;
  }
  bool done() override {
    state_.forbid_in_capture("a look at a stream");
    throw_failed();
    const auto mark = record();
    return state_.sees(*mark);
  }
  void* native() const override { return nullptr; }
  void wait(const core::Event& event) override;
  bool can_capture() const override { return true; }
  void begin_capture() override {
    state_.forbid_in_capture("another");
    pool_of_memory_.capture_begins();
    state_.capture = {.streams = {this}, .calls = {}};
    ++state_.captures;
  }
  std::unique_ptr<core::Graph> end_capture() override;

  bool is_captured() const { return state_.capture && state_.capture->has(*this); }
  // A call that is made now, or recorded. Calls on a stream that is not captured would run at once.
  void make(std::function<void()> call) {
    if (state_.capture) {
      if (!is_captured()) state_.forbid_in_capture("work in a stream that is not part of it");
      state_.capture->calls.push_back(std::move(call));
    } else {
      call();
    }
  }
  // A graph here: other streams begin behind what is queued in this one.
  void launch(const QueuedCapture& graph) {
    const auto begin = record();
    for (QueuedStream* const other : graph.streams) {
      if (other != this) other->wait_for(begin);
    }
    for (const auto& call : graph.calls) call();
  }

 private:
  void queue_as(const std::string& text, const std::vector<MemoryUse>& uses, const Work& work) {
    if (state_.capture) {
      make([=, this] { queue_as(text, uses, work); });
      state_.checker.work(agent_, text, uses);
      return;
    }
    state_.checker.work(agent_, text, uses);
    push(work);
  }
  void wait_for(const std::shared_ptr<QueuedMark>& mark) {
    state_.checker.wait(agent_, mark->clock);
    if (mark->captured) return;
    push([this, mark](kernels::ThreadPool&) {
      while (!mark->passed && !state_.failed) std::this_thread::sleep_for(std::chrono::microseconds(10));
    });
  }

  void pause() const {
    if (state_.failed) throw_failed();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  void throw_failed() const {
    if (!state_.failed) return;
    const std::lock_guard lock(mutex_);
    throw core::Error(core::Failure::rank_lost, failure_.empty() ? "another stream failed" : failure_);
  }

  void push(Work work) {
    if (!state_.options.threads) {
      work(pool());
      return;
    }
    const std::lock_guard lock(mutex_);
    queued_.push_back(std::move(work));
    more_.notify_one();
  }
  // For the thread that does the work. Products of matrices as the trainer's own threads make them.
  kernels::ThreadPool& pool() {
    if (!pool_) {
      pool_ = std::make_unique<kernels::ThreadPool>(1);
      kernels::choose_gemms_by_rule(kernels::Context(*pool_));
    }
    return *pool_;
  }

  std::optional<Work> next(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    if (!more_.wait(lock, stop, [this] { return !queued_.empty(); })) return std::nullopt;
    Work work = std::move(queued_.front());
    queued_.pop_front();
    return work;
  }
  void serve(const std::stop_token& stop) {
    while (auto work = next(stop)) {
      if (random_.uniform() < 0.1) {
        std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int>(300 * random_.uniform())));
      }
      try {
        if (!state_.failed) (*work)(pool());
      } catch (const core::Error& error) {
        const std::lock_guard lock(mutex_);
        failure_ = error.what();
        state_.failed = true;
      }
    }
  }

  QueuedState& state_;
  core::MemoryPool& pool_of_memory_;
  const std::size_t agent_;
  core::Random random_;
  std::unique_ptr<kernels::ThreadPool> pool_;
  mutable std::mutex mutex_;
  std::condition_variable_any more_;
  std::deque<Work> queued_;
  std::string failure_;
  std::jthread thread_;  // last: ends first
};

class QueuedEvent final : public core::Event {
 public:
  explicit QueuedEvent(QueuedState& state) : state_(state) {}
  void record(core::Stream& stream) override {
    auto& queued = dynamic_cast<QueuedStream&>(stream);
    if (queued.is_captured()) queued.make([this, &stream] { record(stream); });
    mark_ = queued.record();
  }
  void record_time(core::Stream& stream) override {
    auto& queued = dynamic_cast<QueuedStream&>(stream);
    if (!queued.is_captured()) return record(stream);
    queued.make([this, &stream] { record(stream); });
    mark_ = nullptr;  // nobody may wait for it
  }
  void synchronize() override {
    state_.forbid_in_capture("a wait for an event");
    while (!mark_->passed && !state_.failed) std::this_thread::sleep_for(std::chrono::microseconds(20));
    state_.checker.wait(0, mark_->clock);
  }
  bool done() override { return state_.sees(*mark_); }
  double us_since(const core::Event& start) const override {
    const auto& other = dynamic_cast<const QueuedEvent&>(start);
    LOCKSTEP_CHECK(mark_->passed && other.mark_->passed, "times are of events that are passed");
    return core::us_between(other.mark_->at, mark_->at);
  }
  void* native() const override { return nullptr; }
  const std::shared_ptr<QueuedMark>& mark() const { return mark_; }

 private:
  QueuedState& state_;
  std::shared_ptr<QueuedMark> mark_;
};

inline void QueuedStream::wait(const core::Event& event) {
  if (state_.waits++ == state_.left_out) return;
  const auto& queued = dynamic_cast<const QueuedEvent&>(event);
  LOCKSTEP_CHECK(queued.mark() != nullptr, "an event that was recorded for work to wait for");
  if (state_.capture) {
    if (!queued.mark()->captured) state_.forbid_in_capture("a wait for work before it");
    if (!is_captured()) state_.capture->streams.push_back(this);
    make([this, &queued] { wait_for(queued.mark()); });
  }
  wait_for(queued.mark());
}

class QueuedGraph final : public core::Graph {
 public:
  QueuedGraph(core::MemoryPool& pool, QueuedCapture captured)
      : pool_(pool), captured_(std::move(captured)), kept_(pool.capture_ends()) {}
  ~QueuedGraph() override { pool_.graph_ends(kept_); }
  QueuedGraph(const QueuedGraph&) = delete;
  QueuedGraph& operator=(const QueuedGraph&) = delete;
  const std::vector<QueuedStream*>& streams() const { return captured_.streams; }
  void launch(core::Stream& stream) override { dynamic_cast<QueuedStream&>(stream).launch(captured_); }

 private:
  core::MemoryPool& pool_;
  const QueuedCapture captured_;
  const core::MemoryPool::Kept kept_;
};

// All streams have to have come back to this one.
inline std::unique_ptr<core::Graph> QueuedStream::end_capture() {
  LOCKSTEP_CHECK(state_.capture, "a capture that has begun");
  QueuedCapture captured = *std::exchange(state_.capture, std::nullopt);
  auto graph = std::make_unique<QueuedGraph>(pool_of_memory_, std::move(captured));
  for (const QueuedStream* const other : graph->streams()) {
    if (!state_.checker.is_behind(agent_, other->agent_)) {
      throw core::Error(core::Failure::cuda, "a capture ends without all of the streams that it took in");
    }
  }
  return graph;
}

class QueuedDevice final : public core::ForwardingDevice {
 public:
  explicit QueuedDevice(const QueuedOptions& options)
      : state_(options), pool_(std::make_unique<Raw>(state_), "the queued device") {}

  QueuedState& state() { return state_; }
  std::string name() const override { return "queued"; }

  void* allocate(std::size_t size_bytes) override {
    void* const memory = pool_.allocate(size_bytes);
    state_.checker.work(0, state_.label + " allocates", {{memory, size_bytes, true}});
    return held(memory, size_bytes);
  }
  void* allocate_on(core::Stream& stream, std::size_t size_bytes) override {
    void* const memory = pool_.allocate_on(stream, size_bytes);
    dynamic_cast<QueuedStream&>(stream).hand_over("allocates", memory, size_bytes);
    return held(memory, size_bytes);
  }
  void release(void* memory) override {
    state_.checker.forget(memory, take_size(memory));
    pool_.release(memory);
  }
  void release_on(core::Stream& stream, void* memory) override {
    dynamic_cast<QueuedStream&>(stream).hand_over("gives back", memory, take_size(memory));
    pool_.release_on(stream, memory);
  }
  void* allocate_pinned(std::size_t size_bytes) override {
    state_.forbid_in_capture("taking page-locked memory");
    ++state_.takings;
    return ForwardingDevice::allocate_pinned(size_bytes);
  }
  std::size_t allocated_bytes() const override { return pool_.bytes().held; }
  std::size_t peak_bytes() const override { return pool_.bytes().peak_held; }
  std::size_t reserved_bytes() const override { return pool_.bytes().reserved; }

  void copy_to_device(void* to, const void* from, std::size_t size_bytes) override {
    state_.forbid_in_capture("a copy by the host");
    state_.checker.work(0, state_.label + " copy by the host", {{to, size_bytes, true}, {from, size_bytes, false}});
    ForwardingDevice::copy_to_device(to, from, size_bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t size_bytes) override {
    state_.forbid_in_capture("a copy by the host");
    state_.checker.work(0, state_.label + " copy by the host", {{to, size_bytes, true}, {from, size_bytes, false}});
    ForwardingDevice::copy_to_host(to, from, size_bytes);
  }
  void copy_on(core::Stream& stream, void* to, const void* from, std::size_t size_bytes) override {
    dynamic_cast<QueuedStream&>(stream).queue(
        "copy", {{to, size_bytes, true}, {from, size_bytes, false}},
        [=, this](kernels::ThreadPool&) { ForwardingDevice::copy_to_host(to, from, size_bytes); });
  }
  void zero_on(core::Stream& stream, void* memory, std::size_t size_bytes) override {
    dynamic_cast<QueuedStream&>(stream).queue("zeros", {{memory, size_bytes, true}}, [=](kernels::ThreadPool&) {
      auto* const bytes = static_cast<std::byte*>(memory);
      std::fill(bytes, bytes + size_bytes, std::byte{0});
    });
  }
  std::unique_ptr<core::Stream> make_stream() override { return std::make_unique<QueuedStream>(state_, pool_); }
  std::unique_ptr<core::Event> make_event() override { return std::make_unique<QueuedEvent>(state_); }

 private:
  // Full of what is no number: what reads before it writes is seen.
  class Raw final : public core::RawMemory {
   public:
    explicit Raw(QueuedState& state) : state_(state) {}
    void* allocate(std::size_t size_bytes) override {
      constexpr std::size_t kAlignment = 512;
      ++state_.takings;
      auto* const memory = static_cast<std::byte*>(
          std::aligned_alloc(kAlignment, (size_bytes + kAlignment - 1) / kAlignment * kAlignment));
      std::fill(memory, memory + size_bytes, std::byte{0xff});
      return memory;
    }
    void release(void* memory) override { std::free(memory); }
    std::size_t free_bytes() override { return 0; }
    std::unique_ptr<core::Event> make_event() override { return std::make_unique<QueuedEvent>(state_); }

   private:
    QueuedState& state_;
  };

  void* held(void* memory, std::size_t size_bytes) {
    sizes_[memory] = size_bytes;
    return memory;
  }
  std::size_t take_size(void* memory) {
    const auto found = sizes_.find(memory);
    LOCKSTEP_CHECK(found != sizes_.end(), "memory that this device handed out");
    const std::size_t size_bytes = found->second;
    sizes_.erase(found);
    return size_bytes;
  }

  QueuedState state_;
  core::MemoryPool pool_;
  std::map<void*, std::size_t> sizes_;
};

}  // namespace lockstep::trainer
