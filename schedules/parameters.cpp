#include "schedules/parameters.h"

#include <algorithm>
#include <set>

namespace lockstep::schedules {
namespace {

bool starts_one(const std::vector<Action>& list, std::size_t i) {
  return i == 0 || !list[i - 1].with_next;
}

// The next different stages that compute, from `begin` on. Of actions that run as one both count, even if that makes
// one more.
std::vector<std::int32_t> next_stages(const std::vector<Action>& list, std::size_t begin, std::size_t most) {
  std::vector<std::int32_t> stages;
  for (std::size_t i = begin; i < list.size(); ++i) {
    if (!is_compute(list[i].op)) continue;
    if (stages.size() >= most && starts_one(list, i)) break;
    if (std::find(stages.begin(), stages.end(), list[i].stage) == stages.end()) stages.push_back(list[i].stage);
  }
  return stages;
}

bool gives_weights(Op op) {
  return op == Op::backward || op == Op::weight_gradient;
}

}  // namespace

Schedule with_gathers(const Schedule& schedule, std::int32_t most_active) {
  Schedule made = schedule;
  for (std::size_t r = 0; r < schedule.of_rank.size(); ++r) {
    const std::vector<Action>& list = schedule.of_rank[r];
    std::vector<Action>& out = made.of_rank[r];
    out.clear();
    std::set<std::int32_t> active;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (is_compute(list[i].op) && starts_one(list, i)) {
        const auto next = next_stages(list, i, static_cast<std::size_t>(std::max(most_active, 1)));
        for (auto stage = active.begin(); stage != active.end();) {
          const bool stays = std::find(next.begin(), next.end(), *stage) != next.end();
          if (!stays) out.push_back({Op::reshard, *stage, kNoMicrobatch});
          stage = stays ? std::next(stage) : active.erase(stage);
        }
        for (const std::int32_t stage : next) {
          if (active.insert(stage).second) out.push_back({Op::unshard, stage, kNoMicrobatch});
        }
      }
      out.push_back(list[i]);
    }
    for (const std::int32_t stage : active) out.push_back({Op::reshard, stage, kNoMicrobatch});
  }
  return made;
}

Schedule with_reductions(const Schedule& schedule) {
  Schedule made = schedule;
  for (std::size_t r = 0; r < schedule.of_rank.size(); ++r) {
    const std::vector<Action>& list = schedule.of_rank[r];
    std::vector<std::size_t> last(schedule.rank_of_stage.size(), list.size());  // backward of each stage
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (gives_weights(list[i].op)) last[static_cast<std::size_t>(list[i].stage)] = i;
    }
    std::vector<Action>& out = made.of_rank[r];
    out.clear();
    std::vector<std::int32_t> complete;  // stages, of what runs as one
    for (std::size_t i = 0; i < list.size(); ++i) {
      out.push_back(list[i]);
      if (gives_weights(list[i].op) && last[static_cast<std::size_t>(list[i].stage)] == i) {
        complete.push_back(list[i].stage);
      }
      if (list[i].with_next) continue;
      for (const std::int32_t stage : complete) out.push_back({Op::reduce_grad, stage, kNoMicrobatch});
      complete.clear();
    }
  }
  return made;
}

}  // namespace lockstep::schedules
