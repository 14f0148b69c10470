#include "schedules/step/unfold.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"

namespace lockstep::schedules {
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
