#include "schedules/step/rewrite.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"

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
  std::array<Tasks, kNumLanes> awaited;          // per lane: new tasks that its next task has to wait for
  for (std::uint32_t i = 0; i < old.tasks.size(); ++i) {
    const Task& task = old.tasks[i];
    Tasks& lane = awaited[static_cast<std::size_t>(task.lane)];
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

namespace {

class Unfolding {
 public:
  Unfolding(const Step& pipeline, std::int32_t copies, std::int32_t stride, const MembersOf& members_of)
      : pipeline_(pipeline), copies_(copies), stride_(stride), members_of_(members_of), made_(pipeline) {
    made_.of_rank.clear();
    made_.groups.clear();
  }

  Step run() {
    for (std::int32_t rank = 0; rank < pipeline_.num_ranks() * copies_; ++rank) add_rank(rank);
    return std::move(made_);
  }

 private:
  void add_rank(std::int32_t rank) {
    const std::int32_t place = rank / stride_ % pipeline_.num_ranks();
    RankStep copy = pipeline_.of_rank[static_cast<std::size_t>(place)];
    for (Task& task : copy.tasks) {
      if (task.comm != Comm::none) {
        task.peer = whole_group(task.peer, rank);
      } else if (task.peer >= 0) {
        task.peer = rank + (task.peer - place) * stride_;
      }
    }
    made_.of_rank.push_back(std::move(copy));
    add_hops(place, rank);
  }

  // A reduction in two hops names the group of both hops; also add the groups of each hop.
  void add_hops(std::int32_t place, std::int32_t rank) {
    for (std::size_t g = 0; g < pipeline_.groups.size(); ++g) {
      const Group& group = pipeline_.groups[g];
      const bool is_hop = group.kind == GroupKind::near || group.kind == GroupKind::far;
      const bool is_in = std::find(group.ranks.begin(), group.ranks.end(), place) != group.ranks.end();
      if (is_hop && is_in) whole_group(static_cast<std::int32_t>(g), rank);
    }
  }

  // Called once per folded group and rank; a group is identified by its first member.
  std::int32_t whole_group(std::int32_t folded, std::int32_t rank) {
    const auto [of_rank, first_time] = of_rank_.try_emplace({folded, rank}, 0);
    if (!first_time) return of_rank->second;
    const Group& group = pipeline_.groups[static_cast<std::size_t>(folded)];
    std::vector<std::int32_t> members = members_of_(group, rank);
    LOCKSTEP_CHECK(!members.empty(), "a group has members");
    const auto [at, is_new] =
        of_first_.try_emplace({folded, members.front()}, static_cast<std::int32_t>(made_.groups.size()));
    if (is_new) made_.groups.push_back({group.kind, std::move(members)});
    return of_rank->second = at->second;
  }

  const Step& pipeline_;
  const std::int32_t copies_;
  const std::int32_t stride_;
  const MembersOf& members_of_;
  Step made_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> of_rank_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> of_first_;
};

}  // namespace

Step unfold(const Step& pipeline, std::int32_t copies, std::int32_t stride, const MembersOf& members_of) {
  return Unfolding(pipeline, copies, stride, members_of).run();
}

}  // namespace lockstep::schedules
