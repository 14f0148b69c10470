#include "schedules/passes/optimizer.h"

#include <string>
#include <vector>

#include "core/error.h"
#include "schedules/step/groups.h"
#include "schedules/step/rewrite.h"

namespace lockstep::schedules {
namespace {

constexpr std::int64_t kNormBytes = 4;  // the sum of squares, as a float

}  // namespace

void add_optimizer(Step& step, std::span<const std::int64_t> ps_of_rank, Barrier barrier) {
  LOCKSTEP_CHECK(ps_of_rank.size() == step.of_rank.size(), "a duration for each rank");
  const GroupTable groups(step);
  for (std::int32_t rank = 0; rank < step.num_ranks(); ++rank) {
    RankStep& of_rank = step.of_rank[static_cast<std::size_t>(rank)];
    std::vector<std::uint32_t> ends = last_of_lanes(of_rank, {Lane::compute, Lane::reduce, Lane::replicas});
    const std::vector<std::uint32_t> over_replicas = last_of_lanes(of_rank, {Lane::replicas});
    RankWriter out(std::move(of_rank));
    if (barrier == Barrier::norm) {
      ends = {out.add({.op = Op::optimizer,
                       .lane = Lane::reduce,
                       .comm = Comm::all_reduce,
                       .peer = groups.of(rank, GroupKind::world, "the norm of the gradients"),
                       .amount = kNormBytes},
                      ends)};
      // The norm waits for these, too; but so one sees what the update waits for (schedules/step/breakdown.h).
      ends.insert(ends.end(), over_replicas.begin(), over_replicas.end());
    }
    out.add({.op = Op::optimizer, .amount = ps_of_rank[static_cast<std::size_t>(rank)]}, ends);
    of_rank = out.take();
  }
}

}  // namespace lockstep::schedules
