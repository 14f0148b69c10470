#include "bench/scaling/scaling.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <tuple>

#include "core/error.h"
#include "core/wait.h"

namespace lockstep::scaling {
namespace {

using schedules::kNumLanes;
using schedules::Lane;
using schedules::Step;
using schedules::Task;

std::size_t index_of(Lane lane) {
  return static_cast<std::size_t>(lane);
}

class Sorter {
 public:
  Sorter(const Step& step, const Concurrency& concurrency)
      : step_(step), concurrency_(concurrency), ranks_(step.of_rank.size()) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const std::vector<Task>& tasks = step.of_rank[r].tasks;
      ranks_[r].ended.resize(tasks.size());
      left_ += tasks.size();
      for (std::uint32_t i = 0; i < tasks.size(); ++i) ranks_[r].lanes[index_of(tasks[i].lane)].push_back(i);
    }
  }

  std::vector<Slot> run() {
    std::vector<Slot> slots;
    while (left_ > 0) {
      slots.push_back(next());
      LOCKSTEP_CHECK(slots.back().size() > 0, "the step makes progress");
      for (const auto* part : {&slots.back().kernels, &slots.back().collective, &slots.back().other}) {
        for (const RankTask& rank_task : *part) end(rank_task);
      }
    }
    return slots;
  }

 private:
  struct Rank {
    std::array<std::vector<std::uint32_t>, kNumLanes> lanes;
    std::array<std::size_t, kNumLanes> done = {};
    std::vector<bool> ended;
  };

  // Tasks other than kernels go first, so that as many kernels as possible start together.
  Slot next() const {
    Slot slot;
    if (const auto other = first_other()) {
      slot.other.push_back(*other);
      return slot;
    }
    std::vector<RankTask> kernels = ready_kernels();
    slot.collective = ready_collective(kernels);
    if (slot.collective.empty()) {
      if (kernels.size() > static_cast<std::size_t>(concurrency_.kernels))
        kernels.resize(static_cast<std::size_t>(concurrency_.kernels));
      slot.kernels = std::move(kernels);
    } else if (overlaps(slot.collective.front())) {
      slot.kernels = std::move(kernels);
    }
    return slot;
  }

  const Task& at(const RankTask& rank_task) const {
    return step_.of_rank[static_cast<std::size_t>(rank_task.rank)].tasks[rank_task.task];
  }
  bool overlaps(const RankTask& task) const { return concurrency_.overlapping[index_of(at(task).lane)]; }

  // The first unfinished task of a lane, if all its dependences on its rank have finished.
  std::optional<RankTask> head(std::size_t r, std::size_t lane) const {
    const Rank& rank = ranks_[r];
    if (rank.done[lane] == rank.lanes[lane].size()) return std::nullopt;
    const std::uint32_t task = rank.lanes[lane][rank.done[lane]];
    for (const std::uint32_t earlier : step_.of_rank[r].after_of(step_.of_rank[r].tasks[task])) {
      if (!rank.ended[earlier]) return std::nullopt;
    }
    return RankTask{static_cast<std::int32_t>(r), task};
  }

  std::optional<RankTask> first_other() const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
        const auto one = head(r, lane);
        if (!one || at(*one).comm != schedules::Comm::none || at(*one).lane == Lane::compute) continue;
        if (schedules::is_recv(at(*one).op) && !sent_.contains({at(*one).peer, one->rank, at(*one).tag})) continue;
        return one;
      }
    }
    return std::nullopt;
  }

  std::vector<RankTask> ready_kernels() const {
    std::vector<RankTask> kernels;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (const auto one = head(r, index_of(Lane::compute))) kernels.push_back(*one);
    }
    return kernels;
  }

  // A collective at which all members have arrived. Of those that should overlap with kernels, one whose member has a
  // kernel ready, if there is any.
  std::vector<RankTask> ready_collective(const std::vector<RankTask>& kernels) const {
    std::vector<RankTask> lonely;
    for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const auto one = head(r, lane);
        if (!one || at(*one).comm == schedules::Comm::none) continue;
        std::vector<RankTask> members = members_at(at(*one), lane);
        if (members.empty()) continue;
        if (!concurrency_.overlapping[lane] || any_shares_rank(members, kernels)) return members;
        lonely = std::move(members);
      }
    }
    return kernels.empty() ? lonely : std::vector<RankTask>{};
  }

  std::vector<RankTask> members_at(const Task& task, std::size_t lane) const {
    std::vector<RankTask> members;
    for (const std::int32_t member : step_.groups[static_cast<std::size_t>(task.peer)].ranks) {
      const auto one = head(static_cast<std::size_t>(member), lane);
      if (!one || at(*one).comm == schedules::Comm::none || at(*one).peer != task.peer) return {};
      members.push_back(*one);
    }
    return members;
  }

  static bool any_shares_rank(const std::vector<RankTask>& members, const std::vector<RankTask>& kernels) {
    return std::any_of(members.begin(), members.end(), [&](const RankTask& member) {
      return std::any_of(kernels.begin(), kernels.end(),
                         [&](const RankTask& kernel) { return kernel.rank == member.rank; });
    });
  }

  void end(const RankTask& rank_task) {
    Rank& rank = ranks_[static_cast<std::size_t>(rank_task.rank)];
    rank.ended[rank_task.task] = true;
    ++rank.done[index_of(at(rank_task).lane)];
    if (schedules::is_send(at(rank_task).op)) sent_.insert({rank_task.rank, at(rank_task).peer, at(rank_task).tag});
    --left_;
  }

  const Step& step_;
  const Concurrency& concurrency_;
  std::vector<Rank> ranks_;
  std::set<std::tuple<std::int32_t, std::int32_t, std::int32_t>> sent_;  // from, to, tag
  std::size_t left_ = 0;
};

}  // namespace

std::vector<Slot> slots_of(const Step& step, const Concurrency& concurrency) {
  return Sorter(step, concurrency).run();
}

namespace {

// A waiting rank sleeps so that it takes no time from the rank that is being timed.
constexpr auto kNap = std::chrono::microseconds(20);

}  // namespace

RankSlots rank_slots_of(const std::vector<Slot>& slots, const schedules::Step& step, std::int32_t rank) {
  RankSlots mine;
  mine.of_task.resize(step.of_rank[static_cast<std::size_t>(rank)].tasks.size());
  for (const Slot& slot : slots) {
    const std::uint64_t before = mine.all;
    mine.all += slot.size();
    for (const auto* part : {&slot.kernels, &slot.collective, &slot.other}) {
      for (const RankTask& rank_task : *part) {
        if (rank_task.rank == rank) mine.of_task[rank_task.task] = {before, mine.all};
      }
    }
  }
  return mine;
}

bool SlotWorker::begin(std::uint32_t task) {
  const RankSlots::Entry entry = mine_.of_task[task];
  // Acquire, here and below: pairs with the releasing increments by the tasks of earlier slots.
  if (progress_.ended.load(std::memory_order_acquire) < base_ + entry.before) return false;
  progress_.begun.fetch_add(1, std::memory_order_acq_rel);
  const core::Deadline deadline = core::Deadline::after(timeout_);
  while (progress_.begun.load(std::memory_order_acquire) < base_ + entry.with) {
    if (mesh_.abort.raised()) mesh_.abort.throw_raised();
    if (deadline.passed()) {
      throw core::Error(core::Failure::timeout,
                        "task " + std::to_string(task) + " timed out waiting for the other tasks of its slot");
    }
    std::this_thread::yield();
  }
  return worker_.begin(task);
}

bool SlotWorker::ended(std::uint32_t task) {
  if (!worker_.ended(task)) return false;
  mesh_.settle();
  progress_.ended.fetch_add(1, std::memory_order_acq_rel);
  return true;
}

void SlotWorker::idle(int /*thread*/) {
  std::this_thread::sleep_for(kNap);
}

}  // namespace lockstep::scaling
