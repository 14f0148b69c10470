#include "bench/scaling/beyond.h"

#include <cmath>
#include <map>
#include <tuple>

#include "core/error.h"
#include "simulator/contention/contended.h"

namespace lockstep::scaling {
namespace {

using schedules::Step;
using schedules::Task;

// The work of a rank, regardless of the index of its group.
using Piece =
    std::tuple<schedules::Op, schedules::Lane, std::int32_t, std::int32_t, std::uint8_t, schedules::GroupKind>;

Piece piece_of(const Step& step, const Task& task) {
  const bool collective = task.comm != schedules::Comm::none;
  const auto kind = collective ? step.groups[static_cast<std::size_t>(task.peer)].kind : schedules::GroupKind::tensor;
  return {task.op, task.lane, task.stage, task.part, task.what, kind};
}

struct Priced {
  std::int64_t ps = 0;
  std::int64_t members = 1;  // ranks in the collective
};

std::map<Piece, Priced> pieces_of(const Step& step, std::int32_t rank, const Prices& prices) {
  std::map<Piece, Priced> pieces;
  for (const Task& task : step.of_rank[static_cast<std::size_t>(rank)].tasks) {
    const bool collective = task.comm != schedules::Comm::none;
    const std::int64_t members = collective ? step.groups[static_cast<std::size_t>(task.peer)].size() : 1;
    pieces.try_emplace(piece_of(step, task), Priced{prices.of(task, rank), members});
  }
  return pieces;
}

}  // namespace

double ring_growth(std::int64_t n, std::int64_t m) {
  const auto share = [](std::int64_t ranks) { return static_cast<double>(ranks - 1) / static_cast<double>(ranks); };
  return n == m || m < 2 ? 1 : share(n) / share(m);
}

Step priced_beyond(Step step, const workload::Layout& many, const Step& measured, const workload::Layout& two,
                   const Prices& prices) {
  const double shard = many.zero > 0 ? static_cast<double>(two.dp) / many.dp : 1;
  for (std::int32_t rank = 0; rank < step.num_ranks(); ++rank) {
    const workload::Coordinates at = workload::coordinates_of(many, rank);
    const auto pieces = pieces_of(measured, workload::rank_at(two, {at.tp, 0, at.pp}), prices);
    for (Task& task : step.of_rank[static_cast<std::size_t>(rank)].tasks) {
      const auto piece = pieces.find(piece_of(step, task));
      LOCKSTEP_CHECK(piece != pieces.end(), "a piece that two replicas have as well");
      double scale = task.op == schedules::Op::optimizer ? shard : 1;
      if (task.comm != schedules::Comm::none) {
        scale = ring_growth(step.groups[static_cast<std::size_t>(task.peer)].size(), piece->second.members);
      }
      task.amount = std::llround(static_cast<double>(piece->second.ps) * scale);
    }
  }
  return simulator::with_whole_messages(std::move(step));
}

}  // namespace lockstep::scaling
