#include "bench/scaling/slots.h"

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
        for (const TaskPlace& place : *part) end(place);
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
    std::vector<TaskPlace> kernels = ready_kernels();
    slot.collective = ready_collective(kernels);
    if (slot.collective.empty()) {
      if (kernels.size() > static_cast<std::size_t>(concurrency_.kernels))
        kernels.resize(static_cast<std::size_t>(concurrency_.kernels));
      slot.kernels = std::move(kernels);
    } else if (is_beside(slot.collective.front())) {
      slot.kernels = std::move(kernels);
    }
    return slot;
  }

  const Task& at(const TaskPlace& place) const {
    return step_.of_rank[static_cast<std::size_t>(place.rank)].tasks[place.task];
  }
  bool is_beside(const TaskPlace& place) const { return concurrency_.beside[index_of(at(place).lane)]; }

  // The first unfinished task of a lane, if all its dependences on its rank have finished.
  std::optional<TaskPlace> head(std::size_t r, std::size_t lane) const {
    const Rank& rank = ranks_[r];
    if (rank.done[lane] == rank.lanes[lane].size()) return std::nullopt;
    const std::uint32_t task = rank.lanes[lane][rank.done[lane]];
    for (const std::uint32_t earlier : step_.of_rank[r].after_of(step_.of_rank[r].tasks[task])) {
      if (!rank.ended[earlier]) return std::nullopt;
    }
    return TaskPlace{static_cast<std::int32_t>(r), task};
  }

  std::optional<TaskPlace> first_other() const {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
        const auto place = head(r, lane);
        if (!place || at(*place).comm != schedules::Comm::none || at(*place).lane == Lane::compute) continue;
        if (schedules::is_recv(at(*place).op) && !sent_.contains({at(*place).peer, place->rank, at(*place).tag}))
          continue;
        return place;
      }
    }
    return std::nullopt;
  }

  std::vector<TaskPlace> ready_kernels() const {
    std::vector<TaskPlace> kernels;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (const auto place = head(r, index_of(Lane::compute))) kernels.push_back(*place);
    }
    return kernels;
  }

  // A collective at which all members have arrived. Of those that should overlap with kernels, one whose member has a
  // kernel ready, if there is any.
  std::vector<TaskPlace> ready_collective(const std::vector<TaskPlace>& kernels) const {
    std::vector<TaskPlace> lonely;
    for (std::size_t lane = 0; lane < kNumLanes; ++lane) {
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        const auto place = head(r, lane);
        if (!place || at(*place).comm == schedules::Comm::none) continue;
        std::vector<TaskPlace> members = members_at(at(*place), lane);
        if (members.empty()) continue;
        if (!concurrency_.beside[lane] || any_shares_rank(members, kernels)) return members;
        lonely = std::move(members);
      }
    }
    return kernels.empty() ? lonely : std::vector<TaskPlace>{};
  }

  std::vector<TaskPlace> members_at(const Task& task, std::size_t lane) const {
    std::vector<TaskPlace> members;
    for (const std::int32_t member : step_.groups[static_cast<std::size_t>(task.peer)].ranks) {
      const auto place = head(static_cast<std::size_t>(member), lane);
      if (!place || at(*place).comm == schedules::Comm::none || at(*place).peer != task.peer) return {};
      members.push_back(*place);
    }
    return members;
  }

  static bool any_shares_rank(const std::vector<TaskPlace>& members, const std::vector<TaskPlace>& kernels) {
    return std::any_of(members.begin(), members.end(), [&](const TaskPlace& member) {
      return std::any_of(kernels.begin(), kernels.end(),
                         [&](const TaskPlace& kernel) { return kernel.rank == member.rank; });
    });
  }

  void end(const TaskPlace& place) {
    Rank& rank = ranks_[static_cast<std::size_t>(place.rank)];
    rank.ended[place.task] = true;
    ++rank.done[index_of(at(place).lane)];
    if (schedules::is_send(at(place).op)) sent_.insert({place.rank, at(place).peer, at(place).tag});
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
      for (const TaskPlace& place : *part) {
        if (place.rank == rank) mine.of_task[place.task] = {before, mine.all};
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
