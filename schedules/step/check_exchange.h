// Checks that messages have matching senders and receivers and that group members issue matching collectives.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "schedules/step/check_step.h"
#include "schedules/step/step.h"

namespace lockstep::schedules {

// Collects problems, up to a limit.
class StepProblems {
 public:
  explicit StepProblems(std::size_t limit) : limit_(limit) {}
  void add(std::size_t rank, std::uint32_t task, std::string what) {
    if (all_.size() < limit_) all_.push_back({static_cast<std::int32_t>(rank), task, std::move(what)});
  }
  bool empty() const { return all_.empty(); }
  std::vector<StepProblem> take() { return std::move(all_); }

 private:
  std::size_t limit_;
  std::vector<StepProblem> all_;
};

template <typename Visit>  // (rank, index, task)
void for_tasks(const Step& step, const Visit& visit) {
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    const auto& tasks = step.of_rank[r].tasks;
    for (std::uint32_t i = 0; i < tasks.size(); ++i) visit(r, i, tasks[i]);
  }
}

// All ranks, groups and edges that tasks name have to exist.
void check_exchange(const Step& step, StepProblems& problems);

}  // namespace lockstep::schedules
