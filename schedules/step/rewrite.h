// Tools of passes, which rewrite a rank's tasks one at a time and map edges to the new indices.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

class RankWriter {
 public:
  RankWriter() = default;
  explicit RankWriter(RankStep begun) : made_(std::move(begun)) {}  // appends to it

  // Appends a task and returns its index. `after`: indices of earlier tasks that it waits for.
  std::uint32_t add(Task task, std::span<const std::uint32_t> after = {}) {
    task.first_after = static_cast<std::uint32_t>(made_.after.size());
    task.num_after = static_cast<std::uint32_t>(after.size());
    made_.after.insert(made_.after.end(), after.begin(), after.end());
    made_.tasks.push_back(task);
    return static_cast<std::uint32_t>(made_.tasks.size() - 1);
  }
  void reserve(std::size_t tasks, std::size_t edges) {
    made_.tasks.reserve(tasks);
    made_.after.reserve(edges);
  }
  std::uint32_t size() const { return static_cast<std::uint32_t>(made_.tasks.size()); }
  const Task& task(std::uint32_t i) const { return made_.tasks[i]; }
  RankStep take() { return std::move(made_); }

 private:
  RankStep made_;
};

inline constexpr std::uint32_t kNoTask = UINT32_MAX;

// The last task of each of these lanes that has one.
inline std::vector<std::uint32_t> last_of_lanes(const RankStep& rank, std::initializer_list<Lane> lanes) {
  std::vector<std::uint32_t> last;
  for (const Lane lane : lanes) {
    const auto found =
        std::find_if(rank.tasks.rbegin(), rank.tasks.rend(), [lane](const Task& task) { return task.lane == lane; });
    if (found != rank.tasks.rend()) last.push_back(static_cast<std::uint32_t>(rank.tasks.rend() - found - 1));
  }
  return last;
}

// Goes through a rank's tasks once. For each old task, in order: keep(i), or several put() and then replace(i, last).
class RankRewriter {
 public:
  explicit RankRewriter(const RankStep& old) : old_(old), ends_of_(old.tasks.size()) {
    writer_.reserve(old.tasks.size(), old.after.size());
  }
  void reserve(std::size_t tasks, std::size_t edges) { writer_.reserve(tasks, edges); }

  // The edges of old task i, as new indices.
  std::span<const std::uint32_t> edges_of(std::uint32_t i) {
    edges_.clear();
    add_edges_of(i, edges_);
    return edges_;
  }
  void add_edges_of(std::uint32_t i, std::vector<std::uint32_t>& edges) const {
    for (const std::uint32_t earlier : old_.after_of(old_.tasks[i])) {
      for (const std::uint32_t end : ends_of_[earlier]) {
        if (end != kNoTask) edges.push_back(end);
      }
    }
  }
  std::uint32_t keep(std::uint32_t i) { return replace(i, writer_.add(old_.tasks[i], edges_of(i))); }
  // Keeps old task i with one more edge, unless that is kNoTask.
  std::uint32_t keep(std::uint32_t i, std::uint32_t also_after) {
    edges_of(i);
    if (also_after != kNoTask) edges_.push_back(also_after);
    return replace(i, writer_.add(old_.tasks[i], edges_));
  }
  std::uint32_t put(const Task& task, std::span<const std::uint32_t> after = {}) { return writer_.add(task, after); }
  // Tasks that waited for old task i now wait for `task`, and for `also`, in another lane, which may end later.
  std::uint32_t replace(std::uint32_t i, std::uint32_t task, std::uint32_t also = kNoTask) {
    ends_of_[i] = {task, also};
    return task;
  }
  std::uint32_t new_of(std::uint32_t i) const { return ends_of_[i][0]; }
  std::uint32_t size() const { return writer_.size(); }
  RankStep take() { return writer_.take(); }

 private:
  const RankStep& old_;
  std::vector<std::array<std::uint32_t, 2>> ends_of_;  // new tasks that stand in for each old one, once written
  std::vector<std::uint32_t> edges_;
  RankWriter writer_;
};

// Removes tasks from a step, to see the time of the remaining ones alone.

// A task that waited for a removed one, by an edge or by its lane's order, waits for everything that the removed task
// waited for. Both ends of a message, and all ranks of a collective, have to be removed together; groups stay.
void leave_out(Step& step, const std::function<bool(const Task&)>& is_left_out);

// Expands the step of one pipeline to many equal pipelines. Passes work on one rank per pipeline stage, whose groups
// have one listed member and the number of real ones; unfold() then writes out all ranks.

// Returns all members, ascending, of the real group that `folded`, a group of the pipeline's step, represents for
// `rank` of the whole step.
using MembersOf = std::function<std::vector<std::int32_t>(const Group& folded, std::int32_t rank)>;

// `copies` pipelines, whose ranks are `stride` apart: rank k of the whole step does the work of rank k / stride % ranks
// of the pipeline's step. Messages stay within a pipeline.
Step unfold(const Step& pipeline, std::int32_t copies, std::int32_t stride, const MembersOf& members_of);

}  // namespace lockstep::schedules
