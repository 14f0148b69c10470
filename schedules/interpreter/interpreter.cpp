#include "schedules/interpreter/interpreter.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include "core/error.h"
#include "core/wait.h"
#include "schedules/schedule.h"

namespace lockstep::schedules {

std::string text_of(const Task& task) {
  std::string text = token_of({task.op, task.stage, task.microbatch});
  if (is_recv(task.op)) text += " from rank " + std::to_string(task.peer);
  if (is_send(task.op)) text += " to rank " + std::to_string(task.peer);
  if (task.comm != Comm::none) text += " with group " + std::to_string(task.peer);
  return text;
}

namespace {

enum class TaskState : std::uint8_t { waiting, begun, ended };

// The tasks of a lane and its progress. Advanced by its thread; other threads read it only for error messages.
struct LaneQueue {
  Lane lane = Lane::compute;
  std::vector<std::uint32_t> tasks = {};
  std::atomic<std::size_t> next{0};
};

class RankRun {
 public:
  RankRun(const Step& step, std::int32_t rank, StageWorker& worker, core::AbortFlag& abort,
          const InterpreterOptions& options)
      : rank_(rank),
        tasks_(step.of_rank[static_cast<std::size_t>(rank)]),
        worker_(worker),
        abort_(abort),
        options_(options),
        states_(tasks_.tasks.size()) {
    for (std::size_t lane = 0; lane < kNumLanes; ++lane) lanes_[lane].lane = static_cast<Lane>(lane);
    for (std::uint32_t i = 0; i < tasks_.tasks.size(); ++i) {
      lanes_[static_cast<std::size_t>(tasks_.tasks[i].lane)].tasks.push_back(i);
    }
  }

  std::vector<TaskSpan> run() {
    const int last = *std::max_element(options_.thread_of.begin(), options_.thread_of.end());
    {
      std::vector<std::jthread> threads;
      for (int t = 1; t <= last; ++t) {
        if (has_work(t)) threads.emplace_back([this, t] { run_guarded(t); });
      }
      run_guarded(0);
    }
    if (abort_.raised()) abort_.throw_raised();
    worker_.finish();
    std::vector<TaskSpan> spans;
    for (std::uint32_t i = 0; i < tasks_.tasks.size(); ++i) spans.push_back(worker_.span_of(i));
    return spans;
  }

 private:
  // The time since which a thread has seen no progress of the rank.
  struct Watch {
    std::uint64_t moves = 0;
    core::Clock::time_point since = core::Clock::now();
  };

  bool is_of(const LaneQueue& queue, int thread) const {
    return options_.thread_of[static_cast<std::size_t>(queue.lane)] == thread && !queue.tasks.empty();
  }
  bool has_work(int thread) const {
    return std::any_of(lanes_.begin(), lanes_.end(), [&](const LaneQueue& queue) { return is_of(queue, thread); });
  }

  // A failure here is raised for all ranks before the other threads of this rank are joined.
  void run_guarded(int thread) noexcept {
    try {
      run_lanes(thread);
    } catch (const core::Error& error) {
      abort_.raise(rank_, error.failure(), error.what());
    } catch (const std::exception& error) {
      abort_.raise(rank_, core::Failure::internal, "rank " + std::to_string(rank_) + ": " + error.what());
    }
  }

  void run_lanes(int thread) {
    Watch watch;
    while (true) {
      const std::uint32_t ends = ends_.load(std::memory_order_seq_cst);
      bool all_done = true;
      bool moved = false;
      for (LaneQueue& queue : lanes_) {
        if (!is_of(queue, thread) || is_done(queue)) continue;
        moved = advance(queue) || moved;
        all_done = all_done && is_done(queue);
      }
      if (all_done) return;
      if (moved) {
        moves_.fetch_add(1, std::memory_order_relaxed);
      } else {
        wait(thread, watch, ends);
      }
    }
  }

  static bool is_done(const LaneQueue& queue) {
    return queue.next.load(std::memory_order_relaxed) == queue.tasks.size();
  }

  // Begins or ends the lane's first unfinished task if possible.
  bool advance(LaneQueue& queue) {
    const std::uint32_t task = queue.tasks[queue.next.load(std::memory_order_relaxed)];
    std::atomic<TaskState>& state = states_[task];
    bool moved = false;
    if (state.load(std::memory_order_relaxed) == TaskState::waiting) {
      if (options_.in_issue_order && !is_next(task)) return false;
      if (missing_for(task) != nullptr || !worker_.begin(task)) return false;
      state.store(TaskState::begun, std::memory_order_relaxed);
      moved = true;
    }
    if (!worker_.ended(task)) return moved;
    // Release: a thread that sees the end also sees what the worker wrote.
    state.store(TaskState::ended, std::memory_order_release);
    queue.next.fetch_add(1, std::memory_order_relaxed);
    // Either this thread sees the sleeper or the sleeper sees the new count: both are sequentially consistent.
    ends_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) core::futex_wake_all(&ends_);
    return true;
  }

  // True if all tasks issued before this one have begun. Messages do not block the thread, so they do not wait for
  // issue order: a message in a busy lane would otherwise delay the receive that its peer waits for.
  bool is_next(std::uint32_t task) {
    if (is_message(tasks_.tasks[task].op)) return true;
    while (states_[first_waiting_].load(std::memory_order_relaxed) != TaskState::waiting) ++first_waiting_;
    return task == first_waiting_;
  }

  // The first task that has to end before this one may begin; no value if it may begin.
  const Task* missing_for(std::uint32_t task) const {
    for (const std::uint32_t earlier : tasks_.after_of(tasks_.tasks[task])) {
      if (states_[earlier].load(std::memory_order_acquire) != TaskState::ended) return &tasks_.tasks[earlier];
    }
    return nullptr;
  }

  // Sleeps until a task ends, but only briefly, as another rank may fail.
  void sleep(std::uint32_t ends) {
    constexpr auto kLongest = std::chrono::milliseconds(5);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    if (ends_.load(std::memory_order_seq_cst) == ends) core::futex_wait(&ends_, ends, kLongest);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

  // `ends`: value of ends_ before this thread polled its lanes.
  void wait(int thread, Watch& watch, std::uint32_t ends) {
    if (abort_.raised()) abort_.throw_raised();
    const std::uint64_t moves = moves_.load(std::memory_order_relaxed);
    if (moves != watch.moves) {
      watch = {moves};
    } else if (core::Clock::now() - watch.since > options_.deadline) {
      throw core::Error(core::Failure::timeout, places_text());
    }
    if (thread != 0 && options_.others_sleep) {
      sleep(ends);
    } else {
      worker_.idle(thread);
    }
  }

  // "rank 1: nothing began or ended for 500 ms: compute at 1F2, which waits for 1RECV_F2 from rank 0; ..."
  std::string places_text() const {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(options_.deadline).count();
    std::string text = "rank " + std::to_string(rank_) + ": nothing began or ended for " + std::to_string(ms) + " ms";
    std::string_view separator = ": ";
    for (const LaneQueue& queue : lanes_) {
      if (is_done(queue)) continue;
      const std::uint32_t task = queue.tasks[queue.next.load(std::memory_order_relaxed)];
      text += std::string(separator) + std::string(name_of(queue.lane)) + " at " + text_of(tasks_.tasks[task]);
      const Task* const missing = missing_for(task);
      if (missing != nullptr) text += ", which waits for " + text_of(*missing);
      separator = "; ";
    }
    return text;
  }

  const std::int32_t rank_;
  const RankStep& tasks_;
  StageWorker& worker_;
  core::AbortFlag& abort_;
  const InterpreterOptions& options_;
  std::vector<std::atomic<TaskState>> states_;
  std::array<LaneQueue, kNumLanes> lanes_;
  std::atomic<std::uint64_t> moves_{0};
  std::uint32_t first_waiting_ = 0;     // in issue order; used by one thread
  std::atomic<std::uint32_t> ends_{0};  // tasks that have ended; sleeping threads wait for a change
  std::atomic<int> sleepers_{0};
};

}  // namespace

std::vector<TaskSpan> run_rank(const Step& step, std::int32_t rank, StageWorker& worker, core::AbortFlag& abort,
                               const InterpreterOptions& options) {
  return RankRun(step, rank, worker, abort, options).run();
}

}  // namespace lockstep::schedules
