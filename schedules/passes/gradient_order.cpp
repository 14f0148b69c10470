#include "schedules/passes/gradient_order.h"

namespace lockstep::schedules {

std::vector<Completes> completed_gradients(const Step& step, const RankStep& rank, bool last_only) {
  constexpr std::int32_t kNone = -1;
  std::vector<Completes> completes(rank.tasks.size(), Completes::nothing);
  std::vector<std::int32_t> microbatch_of(step.rank_of_stage.size(), kNone);  // whose gradients were seen, from the end
  std::vector<std::vector<std::int32_t>> of_part(step.rank_of_stage.size());  // likewise
  for (std::size_t i = rank.tasks.size(); i-- > 0;) {
    const Task& task = rank.tasks[i];
    if (!gives_weight_gradients(task)) continue;
    const auto stage = static_cast<std::size_t>(task.stage);
    const bool first_seen = microbatch_of[stage] == kNone;
    if (last_only && !first_seen && microbatch_of[stage] != task.microbatch) continue;
    if (microbatch_of[stage] != task.microbatch) {
      microbatch_of[stage] = task.microbatch;
      of_part[stage].clear();
      completes[i] = Completes::action;
    }
    const auto part = static_cast<std::size_t>(task.part) + 1;  // 0 where the action has no parts
    if (part >= of_part[stage].size()) of_part[stage].resize(part + 1, kNone);
    if (of_part[stage][part] == task.microbatch) continue;
    of_part[stage][part] = task.microbatch;
    if (completes[i] == Completes::nothing) completes[i] = Completes::part;
  }
  return completes;
}

}  // namespace lockstep::schedules
