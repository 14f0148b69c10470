#include "schedules/passes/leave_out.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "schedules/step/rewrite.h"

namespace lockstep::schedules {
namespace {

using Tasks = std::vector<std::uint32_t>;

void unite(Tasks& into, const Tasks& more) {
  into.insert(into.end(), more.begin(), more.end());
  std::sort(into.begin(), into.end());
  into.erase(std::unique(into.begin(), into.end()), into.end());
}

RankStep remaining(const RankStep& old, const std::function<bool(const Task&)>& is_left_out) {
  RankWriter out;
  std::vector<Tasks> ends_of(old.tasks.size());  // per old task: new tasks whose ends imply its end
  std::array<Tasks, kNumLanes> behind;           // per lane: new tasks that its next task has to wait for
  for (std::uint32_t i = 0; i < old.tasks.size(); ++i) {
    const Task& task = old.tasks[i];
    Tasks& lane = behind[static_cast<std::size_t>(task.lane)];
    Tasks after;
    for (const std::uint32_t earlier : old.after_of(task)) unite(after, ends_of[earlier]);
    unite(after, lane);
    if (is_left_out(task)) {
      lane = after;
    } else {
      // The last kept task of the lane needs no edge.
      std::erase_if(after, [&](std::uint32_t earlier) { return out.task(earlier).lane == task.lane; });
      after = {out.add(task, after)};
      lane = after;
    }
    ends_of[i] = std::move(after);
  }
  return out.take();
}

}  // namespace

void leave_out(Step& step, const std::function<bool(const Task&)>& is_left_out) {
  for (RankStep& rank : step.of_rank) rank = remaining(rank, is_left_out);
}

}  // namespace lockstep::schedules
