// How passes change a rank's part of a step: they write it anew, task by task, and edges find their tasks again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

class RankWriter {
 public:
  // Returns the task's index. `after`: indices of tasks that were written before.
  std::uint32_t add(Task task, std::span<const std::uint32_t> after = {}) {
    task.first_after = static_cast<std::uint32_t>(made_.after.size());
    task.num_after = static_cast<std::uint32_t>(after.size());
    made_.after.insert(made_.after.end(), after.begin(), after.end());
    made_.tasks.push_back(task);
    return static_cast<std::uint32_t>(made_.tasks.size() - 1);
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(made_.tasks.size()); }
  RankStep take() { return std::move(made_); }

 private:
  RankStep made_;
};

// Goes through a rank's tasks once. For each old task, in order: keep(i), or several put() and then replace(i, last).
class RankRewriter {
 public:
  explicit RankRewriter(const RankStep& old) : old_(old), new_of_(old.tasks.size()) {}

  // The edges of old task i, as new indices.
  std::span<const std::uint32_t> edges_of(std::uint32_t i) {
    edges_.clear();
    for (const std::uint32_t earlier : old_.after_of(old_.tasks[i])) edges_.push_back(new_of_[earlier]);
    return edges_;
  }
  std::uint32_t keep(std::uint32_t i) { return replace(i, writer_.add(old_.tasks[i], edges_of(i))); }
  std::uint32_t put(const Task& task, std::span<const std::uint32_t> after = {}) { return writer_.add(task, after); }
  // Who was after old task i is now after `task`.
  std::uint32_t replace(std::uint32_t i, std::uint32_t task) { return new_of_[i] = task; }
  std::uint32_t new_of(std::uint32_t i) const { return new_of_[i]; }
  RankStep take() { return writer_.take(); }

 private:
  const RankStep& old_;
  std::vector<std::uint32_t> new_of_;
  std::vector<std::uint32_t> edges_;
  RankWriter writer_;
};

}  // namespace lockstep::schedules
