#include "schedules/step/check_run.h"

#include <algorithm>
#include <array>

namespace lockstep::schedules {
namespace {

struct RankState {
  std::array<std::vector<std::uint32_t>, kNumLanes> tasks_of = {};  // by lane
  std::array<std::size_t, kNumLanes> next = {};
  std::array<bool, kNumLanes> in_collective = {};  // the lane's next one has been counted in its group
  std::vector<bool> done = {};
  std::vector<bool> arrived = {};  // by tag
};

class Run {
 public:
  explicit Run(const Step& step) : step_(step), ranks_(step.of_rank.size()), waiting_(step.groups.size()) {
    for (auto& lanes : waiting_) lanes.fill(0);
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const auto& tasks = step.of_rank[r].tasks;
      for (std::uint32_t i = 0; i < tasks.size(); ++i) {
        ranks_[r].tasks_of[static_cast<std::size_t>(tasks[i].lane)].push_back(i);
      }
      ranks_[r].done.resize(tasks.size());
      ranks_[r].arrived.resize(static_cast<std::size_t>(
          std::count_if(tasks.begin(), tasks.end(), [](const Task& task) { return is_recv(task.op); })));
      runnable_.push_back(r);
    }
  }

  void run() {
    while (!runnable_.empty()) {
      const std::size_t r = runnable_.back();
      runnable_.pop_back();
      bool any = true;
      while (any) {
        any = false;
        for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
          while (try_next(r, lane)) any = true;
        }
      }
    }
  }

  std::vector<StepProblem> stuck() const {
    std::vector<StepProblem> all;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
        const auto& tasks = ranks_[r].tasks_of[lane];
        if (ranks_[r].next[lane] == tasks.size()) continue;
        all.push_back({static_cast<std::int32_t>(r), tasks[ranks_[r].next[lane]],
                       "stands still in lane " + std::string(name_of(static_cast<Lane>(lane)))});
      }
    }
    return all;
  }

 private:
  bool try_next(std::size_t r, std::size_t lane) {
    RankState& rank = ranks_[r];
    if (rank.next[lane] == rank.tasks_of[lane].size()) return false;
    const std::uint32_t i = rank.tasks_of[lane][rank.next[lane]];
    const Task& task = step_.of_rank[r].tasks[i];
    for (const std::uint32_t earlier : step_.of_rank[r].after_of(task)) {
      if (!rank.done[earlier]) return false;
    }
    if (is_recv(task.op) && !rank.arrived[static_cast<std::size_t>(task.tag)]) return false;
    if (task.comm != Comm::none) return meet(r, lane, task);
    if (is_send(task.op)) {
      const auto peer = static_cast<std::size_t>(task.peer);
      ranks_[peer].arrived[static_cast<std::size_t>(task.tag)] = true;
      runnable_.push_back(peer);
    }
    end(r, lane);
    return true;
  }

  void end(std::size_t r, std::size_t lane) {
    RankState& rank = ranks_[r];
    rank.done[rank.tasks_of[lane][rank.next[lane]++]] = true;
    rank.in_collective[lane] = false;
  }

  bool meet(std::size_t r, std::size_t lane, const Task& task) {
    const auto g = static_cast<std::size_t>(task.peer);
    if (ranks_[r].in_collective[lane]) return false;
    ranks_[r].in_collective[lane] = true;
    if (++waiting_[g][lane] < step_.groups[g].ranks.size()) return false;
    waiting_[g][lane] = 0;
    for (const std::int32_t member : step_.groups[g].ranks) {
      end(static_cast<std::size_t>(member), lane);
      runnable_.push_back(static_cast<std::size_t>(member));
    }
    return true;
  }

  const Step& step_;
  std::vector<RankState> ranks_;
  std::vector<std::array<std::size_t, kNumLanes>> waiting_;  // members that stand at a group's collective, by lane
  std::vector<std::size_t> runnable_;
};

}  // namespace

std::vector<StepProblem> stuck_tasks(const Step& step) {
  Run run(step);
  run.run();
  return run.stuck();
}

}  // namespace lockstep::schedules
