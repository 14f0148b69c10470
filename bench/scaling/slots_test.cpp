#include "bench/scaling/slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "bench/scaling/measure.h"
#include "trainer/step/train_step.h"

namespace lockstep::scaling {
namespace {

using schedules::Lane;
using schedules::Step;
using schedules::Task;

constexpr Concurrency kWithCollectives{
    8, {false, false, false, false, true, true, false}};  // gather and reduce have threads of their own

Step step_of(const workload::Layout& layout) {
  const auto model = workload::parse_model("layers=4,hidden=256,heads=2,vocabulary=256,sequence=8,dropout=no");
  return trainer::make_train_step(model, layout).step;
}

std::vector<Step> steps() {
  std::vector<Step> all;
  for (const workload::Layout& layout :
       {workload::Layout{}, workload::Layout{.dp = 2, .bucket_cap_bytes = 1 << 20},
        workload::Layout{.dp = 4, .zero = 3}, workload::Layout{.tp = 2, .sequence_parallel = true},
        workload::Layout{.pp = 4, .schedule = "zb_h1", .microbatches = 8},
        workload::Layout{.pp = 4, .zero = 2, .schedule = "chimera", .microbatches = 4},
        workload::Layout{.dp = 2, .tp = 2, .pp = 2, .zero = 2, .microbatches = 4}}) {
    all.push_back(step_of(layout));
  }
  return all;
}

// The slot of each task; fails where a task is in none or in two.
std::vector<std::vector<std::size_t>> slot_of_tasks(const Step& step, const std::vector<Slot>& slots) {
  std::vector<std::vector<std::size_t>> slot_of;
  for (const auto& rank : step.of_rank) slot_of.emplace_back(rank.tasks.size(), slots.size());
  for (std::size_t w = 0; w < slots.size(); ++w) {
    for (const auto* part : {&slots[w].kernels, &slots[w].collective, &slots[w].other}) {
      for (const TaskPlace& place : *part) {
        std::size_t& at = slot_of[static_cast<std::size_t>(place.rank)][place.task];
        EXPECT_EQ(at, slots.size()) << "a task in two slots";
        at = w;
      }
    }
  }
  for (const auto& rank : slot_of) EXPECT_EQ(std::count(rank.begin(), rank.end(), slots.size()), 0);
  return slot_of;
}

void expect_legal(const Step& step, const std::vector<Slot>& slots) {
  const auto slot_of = slot_of_tasks(step, slots);
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, std::size_t> sent;
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    std::array<std::size_t, schedules::kNumLanes> last = {};
    for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
      const Task& task = step.of_rank[r].tasks[i];
      for (const std::uint32_t earlier : step.of_rank[r].after_of(task)) {
        ASSERT_LT(slot_of[r][earlier], slot_of[r][i]) << step.name;
      }
      std::size_t& before = last[static_cast<std::size_t>(task.lane)];
      ASSERT_LE(before, slot_of[r][i]) << "a lane's order";
      before = slot_of[r][i] + 1;
      if (schedules::is_send(task.op)) sent[{static_cast<std::int32_t>(r), task.peer, task.tag}] = slot_of[r][i];
    }
  }
  for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
    for (std::size_t i = 0; i < step.of_rank[r].tasks.size(); ++i) {
      const Task& task = step.of_rank[r].tasks[i];
      if (!schedules::is_recv(task.op)) continue;
      ASSERT_LT(sent.at({task.peer, static_cast<std::int32_t>(r), task.tag}), slot_of[r][i]);
    }
  }
}

TEST(Slots, AnyConcurrencyIsALegalOrder) {
  for (const Step& step : steps()) {
    for (const Concurrency& concurrency :
         {Concurrency{}, Concurrency{.kernels = 2}, Concurrency{.kernels = 8}, kWithCollectives}) {
      expect_legal(step, slots_of(step, concurrency));
    }
  }
}

TEST(Slots, AloneIsOnePieceAtATime) {
  for (const Step& step : steps()) {
    for (const Slot& slot : slots_of(step, {})) {
      EXPECT_EQ(slot.kernels.size() + slot.other.size() + (slot.collective.empty() ? 0 : 1), 1U);
    }
  }
}

TEST(Slots, KernelsTogetherAreOfDifferentRanksAndAsManyAsAsked) {
  for (const Step& step : steps()) {
    std::size_t most = 0;
    for (const Slot& slot : slots_of(step, {.kernels = 2})) {
      std::set<std::int32_t> ranks;
      for (const TaskPlace& place : slot.kernels) ranks.insert(place.rank);
      EXPECT_EQ(ranks.size(), slot.kernels.size());
      most = std::max(most, slot.kernels.size());
    }
    EXPECT_EQ(most, std::min<std::size_t>(step.of_rank.size(), 2));
  }
}

// Buckets leave while the backward goes on: a collective has kernels of its members beside it.
TEST(Slots, CollectivesFindKernelsBesideThem) {
  const Step step = step_of({.dp = 2, .bucket_cap_bytes = 1 << 20});
  std::size_t beside = 0;
  for (const Slot& slot : slots_of(step, kWithCollectives)) {
    if (!slot.collective.empty() && !slot.kernels.empty()) ++beside;
  }
  EXPECT_GE(beside, 3U);
}

TEST(RankSlots, CountWhatIsBeforeAndWith) {
  const Step step = step_of({.dp = 2});
  const std::vector<Slot> slots = slots_of(step, {.kernels = 2});
  const RankSlots first = rank_slots_of(slots, step, 0);
  std::uint64_t before = 0;
  for (const Slot& slot : slots) {
    for (const TaskPlace& place : slot.kernels) {
      if (place.rank != 0) continue;
      EXPECT_EQ(first.of_task[place.task].before, before);
      EXPECT_EQ(first.of_task[place.task].with, before + slot.size());
    }
    before += slot.size();
  }
  EXPECT_EQ(first.all, before);
  EXPECT_EQ(first.all, step.of_rank[0].tasks.size() + step.of_rank[1].tasks.size());
}

// Members of a collective may have stages of their own in it: copies, with two pipes.
TEST(Prices, EveryPieceThatWasTimedAloneHasOne) {
  for (const Step& step : steps()) {
    schedules::StepTimeline timeline;
    for (const auto& rank : step.of_rank) timeline.emplace_back(rank.tasks.size(), schedules::TaskSpan{1000, 3000});
    Prices prices;
    prices.add(step, spans_of(slots_of(step, {}), timeline));
    const Step with_prices = priced(step, prices);
    for (const auto& rank : with_prices.of_rank) {
      for (const Task& task : rank.tasks) {
        const std::int64_t ends = schedules::is_send(task.op) ? 2 : schedules::is_recv(task.op) ? 0 : 1;
        EXPECT_EQ(task.amount, 2000 * ends);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::scaling
