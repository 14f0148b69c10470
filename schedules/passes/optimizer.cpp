#include "schedules/passes/optimizer.h"

#include <array>
#include <string>
#include <vector>

#include "core/error.h"
#include "schedules/step/groups.h"
#include "schedules/step/rewrite.h"

namespace lockstep::schedules {
namespace {

constexpr std::int64_t kNormBytes = 4;  // the sum of squares, as a float

// The last task of each of two lanes.
std::vector<std::uint32_t> ends_of(const RankStep& rank) {
  std::array<std::uint32_t, kNumLanes> last = {};
  last.fill(kNoTask);
  for (std::uint32_t i = 0; i < rank.tasks.size(); ++i) last[static_cast<std::size_t>(rank.tasks[i].lane)] = i;
  std::vector<std::uint32_t> ends;
  for (const Lane lane : {Lane::compute, Lane::reduce}) {
    if (last[static_cast<std::size_t>(lane)] != kNoTask) ends.push_back(last[static_cast<std::size_t>(lane)]);
  }
  return ends;
}

}  // namespace

void add_optimizer(Step& step, std::span<const std::int64_t> ps_of_rank, Barrier barrier) {
  LOCKSTEP_CHECK(ps_of_rank.size() == step.of_rank.size(), "a duration for each rank");
  const GroupTable groups(step);
  for (std::int32_t rank = 0; rank < step.num_ranks(); ++rank) {
    RankStep& of_rank = step.of_rank[static_cast<std::size_t>(rank)];
    std::vector<std::uint32_t> ends = ends_of(of_rank);
    RankWriter out(std::move(of_rank));
    if (barrier == Barrier::norm) {
      ends = {out.add({.op = Op::optimizer,
                       .lane = Lane::reduce,
                       .comm = Comm::all_reduce,
                       .peer = groups.of(rank, GroupKind::world, "the norm of the gradients"),
                       .amount = kNormBytes},
                      ends)};
    }
    out.add({.op = Op::optimizer, .amount = ps_of_rank[static_cast<std::size_t>(rank)]}, ends);
    of_rank = out.take();
  }
}

}  // namespace lockstep::schedules
