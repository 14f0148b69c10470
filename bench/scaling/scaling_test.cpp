#include "bench/scaling/scaling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "simulator/engine/contended.h"
#include "trainer/step/train_step.h"

namespace lockstep::scaling {
namespace {

using schedules::Comm;
using schedules::Lane;
using schedules::Op;
using schedules::RankStep;
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
      for (const RankTask& rank_task : *part) {
        std::size_t& at = slot_of[static_cast<std::size_t>(rank_task.rank)][rank_task.task];
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
      for (const RankTask& kernel : slot.kernels) ranks.insert(kernel.rank);
      EXPECT_EQ(ranks.size(), slot.kernels.size());
      most = std::max(most, slot.kernels.size());
    }
    EXPECT_EQ(most, std::min<std::size_t>(step.of_rank.size(), 2));
  }
}

// Buckets are sent while the backward goes on: a collective overlaps with kernels of its members.
TEST(Slots, CollectivesOverlapWithKernels) {
  const Step step = step_of({.dp = 2, .bucket_cap_bytes = 1 << 20});
  std::size_t overlapping = 0;
  for (const Slot& slot : slots_of(step, kWithCollectives)) {
    if (!slot.collective.empty() && !slot.kernels.empty()) ++overlapping;
  }
  EXPECT_GE(overlapping, 3U);
}

TEST(RankSlots, CountWhatIsBeforeAndWith) {
  const Step step = step_of({.dp = 2});
  const std::vector<Slot> slots = slots_of(step, {.kernels = 2});
  const RankSlots first = rank_slots_of(slots, step, 0);
  std::uint64_t before = 0;
  for (const Slot& slot : slots) {
    for (const RankTask& kernel : slot.kernels) {
      if (kernel.rank != 0) continue;
      EXPECT_EQ(first.of_task[kernel.task].before, before);
      EXPECT_EQ(first.of_task[kernel.task].with, before + slot.size());
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

constexpr std::array<bool, schedules::kNumLanes> kReduceOverlaps{false, false, false, false, false, true, false};

// Each rank: sequential kernels of the given lengths.
Step kernels(const std::vector<std::vector<std::int64_t>>& lengths) {
  Step step{.name = "kernels"};
  for (const auto& rank : lengths) {
    RankStep& tasks = step.of_rank.emplace_back();
    std::int32_t part = 0;
    for (const std::int64_t ps : rank) {
      tasks.tasks.push_back({.op = Op::forward, .stage = 0, .microbatch = 0, .part = part++, .amount = ps});
    }
  }
  return step;
}

Factor factor_of(double value) {
  Factor factor;
  factor.add(1'000'000, static_cast<std::int64_t>(value * 1e6), static_cast<std::int64_t>(value * 1e6));
  return factor;
}

TEST(Factor, IsConcurrentTimeOverWorkDoneInIt) {
  EXPECT_EQ(Factor{}.value(), 1);
  Factor whole;
  whole.add(100, 150, 150);
  EXPECT_DOUBLE_EQ(whole.value(), 1.5);
  Factor half;  // 60 of 120 while others ran; 40 of the work was done there
  half.add(100, 120, 60);
  EXPECT_DOUBLE_EQ(half.value(), 1.5);
  Factor little;
  little.add(100, 120, 10);
  EXPECT_EQ(little.samples(), 0U);
}

TEST(Factor, IsTheMedianByWeight) {
  Factor factor;
  factor.add(10, 90, 90);  // short ones are uninformative
  factor.add(10, 80, 80);
  factor.add(100, 120, 120);
  EXPECT_DOUBLE_EQ(factor.value(), 1.2);
}

TEST(Slowdowns, LieOnLinesBetweenWhatWasMeasured) {
  Slowdowns slowdowns;
  slowdowns.kernel[Op::forward][2] = factor_of(1.1);
  slowdowns.kernel[Op::forward][4] = factor_of(2.1);
  slowdowns.kernel_with_collective[Op::backward] = factor_of(1.5);
  EXPECT_DOUBLE_EQ(slowdowns.of_kernel(Op::forward, 1, true), 1);
  EXPECT_DOUBLE_EQ(slowdowns.of_kernel(Op::forward, 2, false), 1.1);
  EXPECT_DOUBLE_EQ(slowdowns.of_kernel(Op::forward, 3, false), 1.6);
  EXPECT_DOUBLE_EQ(slowdowns.of_kernel(Op::forward, 9, false), 2.1);
  EXPECT_DOUBLE_EQ(slowdowns.of_kernel(Op::input_gradient, 2, true), 1.5) << "a backward's family";
  slowdowns.collective[static_cast<std::size_t>(Lane::reduce)] = factor_of(3);
  EXPECT_DOUBLE_EQ(slowdowns.of_collective(Lane::reduce, 0.5), 2);
}

simulator::Simulation contended(const Step& step, const Slowdowns& slowdowns,
                                const simulator::LanesBeside& overlapping) {
  return play_contended(step, overlapping, slowdown_of(step, slowdowns, overlapping));
}

// Kernels of 300 and 100 with a factor of 2 for two: both run at half speed until the short one ends at 200, then 200
// are left.
TEST(Contended, TwoRanksSlowEachOtherDownWhileBothCompute) {
  const Step step = kernels({{300'000}, {100'000}});
  Slowdowns slowdowns;
  slowdowns.kernel[Op::forward][2] = factor_of(2);
  EXPECT_EQ(simulator::play(step).makespan_ps, 300'000);
  const simulator::Simulation played = contended(step, slowdowns, {});
  EXPECT_NEAR(static_cast<double>(played.timeline[1][0].end_ps), 200'000, 200);
  EXPECT_NEAR(static_cast<double>(played.makespan_ps), 400'000, 400);
}

TEST(Contended, NothingIsSlowerAlone) {
  const Step step = kernels({{300'000, 50'000}});
  Slowdowns slowdowns;
  slowdowns.kernel[Op::forward][2] = factor_of(2);
  EXPECT_EQ(contended(step, slowdowns, {}).makespan_ps, 350'000);
}

// A collective of 100 concurrent with a kernel of 300: it then takes 3 times as long, the kernel 1.25 times.
TEST(Contended, AKernelAndACollectiveSlowEachOtherDown) {
  Step step{.name = "overlapping"};
  step.groups.push_back({schedules::GroupKind::data, {0}, 1});
  RankStep& rank = step.of_rank.emplace_back();
  rank.tasks = {{.op = Op::backward, .stage = 0, .microbatch = 0, .amount = 300'000},
                {.op = Op::reduce_grad,
                 .lane = Lane::reduce,
                 .comm = Comm::all_reduce,
                 .stage = 0,
                 .peer = 0,
                 .amount = 100'000}};
  Slowdowns slowdowns;
  slowdowns.kernel_with_collective[Op::backward] = factor_of(1.25);
  slowdowns.collective[static_cast<std::size_t>(Lane::reduce)] = factor_of(3);
  const simulator::Simulation played = contended(step, slowdowns, kReduceOverlaps);
  EXPECT_NEAR(static_cast<double>(played.timeline[0][1].end_ps), 300'000, 300);
  EXPECT_NEAR(static_cast<double>(played.timeline[0][0].end_ps), 300'000 + 60'000, 400);
}

// add_samples() finds the factors that spans were made with.
TEST(Contended, SamplesGiveBackTheFactorsThatMadeThem) {
  const Step step = kernels({{100, 100}, {100, 100}});
  const std::vector<Slot> alone = slots_of(step, {});
  const std::vector<Slot> pairs = slots_of(step, {.kernels = 2});
  ASSERT_EQ(pairs.size(), 2U);
  Prices prices;
  prices.add(step, spans_of(alone, {{{0, 100}, {200, 300}}, {{100, 200}, {300, 400}}}));
  EXPECT_EQ(prices.size(), 2U) << "ranks and microbatches do not count";
  Slowdowns slowdowns;
  add_samples(slowdowns, step, spans_of(pairs, {{{0, 130}, {130, 260}}, {{0, 130}, {130, 260}}}), prices);
  EXPECT_DOUBLE_EQ(slowdowns.of_kernel(Op::forward, 2, false), 1.3);
}

TEST(Prices, AMessageIsOnePieceOfTime) {
  Step step{.name = "message"};
  step.of_rank.resize(2);
  step.of_rank[0].tasks = {
      {.op = Op::send_activations, .lane = Lane::send, .stage = 0, .microbatch = 0, .peer = 1, .tag = 0}};
  step.of_rank[1].tasks = {
      {.op = Op::recv_activations, .lane = Lane::receive, .stage = 1, .microbatch = 0, .peer = 0, .tag = 0}};
  Prices prices;
  prices.add(step, spans_of(slots_of(step, {}), {{{0, 30}}, {{40, 60}}}));
  const simulator::Simulation played = simulator::play(priced(step, prices));
  EXPECT_EQ(played.makespan_ps, 50);
}

schedules::Step narrow_step_of(const workload::Layout& layout) {
  const auto model = workload::parse_model("layers=4,hidden=16,heads=2,vocabulary=256,sequence=8,dropout=no");
  return trainer::make_train_step(model, layout).step;
}

// Each piece alone takes 1000 ps.
Prices all_alike(const schedules::Step& step) {
  schedules::StepTimeline timeline;
  for (const auto& rank : step.of_rank) timeline.emplace_back(rank.tasks.size(), schedules::TaskSpan{0, 1000});
  Prices prices;
  prices.add(step, spans_of(slots_of(step, {}), timeline));
  return prices;
}

TEST(Beyond, CollectivesOfReplicasGrowAsARingsBytes) {
  EXPECT_DOUBLE_EQ(ring_growth(2, 2), 1);
  EXPECT_DOUBLE_EQ(ring_growth(4, 2), 1.5);
  EXPECT_DOUBLE_EQ(ring_growth(1 << 20, 2), 2 * (1 - 1.0 / (1 << 20)));
}

TEST(Beyond, KernelsStayShardsShrinkAndEveryPieceIsFound) {
  for (const std::int32_t zero : {0, 1, 2, 3}) {
    for (const workload::Layout& base : {workload::Layout{.zero = zero}, workload::Layout{.tp = 2, .zero = zero},
                                         workload::Layout{.pp = 2, .zero = zero, .microbatches = 4}}) {
      workload::Layout two = base;
      two.dp = 2;
      workload::Layout many = base;
      many.dp = 4;
      const schedules::Step measured = narrow_step_of(two);
      const schedules::Step step = priced_beyond(narrow_step_of(many), many, measured, two, all_alike(measured));
      for (const auto& rank : step.of_rank) {
        for (const schedules::Task& task : rank.tasks) {
          if (task.op == schedules::Op::forward) {
            EXPECT_EQ(task.amount, 1000);
          }
          const bool updates = task.op == schedules::Op::optimizer && task.comm == schedules::Comm::none;
          if (updates) {
            EXPECT_EQ(task.amount, zero == 0 ? 1000 : 500);
          }
          if (task.comm == schedules::Comm::none) continue;
          const auto kind = step.groups[static_cast<std::size_t>(task.peer)].kind;
          if (kind == schedules::GroupKind::data) {
            EXPECT_EQ(task.amount, 1500);
          }
          if (kind == schedules::GroupKind::tensor) {
            EXPECT_EQ(task.amount, 1000);
          }
        }
      }
      EXPECT_GT(simulator::play(step).makespan_ps, 0);
    }
  }
}

// Two replicas represent all others of a layout with more.
TEST(Beyond, TwoReplicasStandForAll) {
  for (const std::int32_t zero : {0, 1, 2, 3}) {
    for (const workload::Layout& base : {workload::Layout{.zero = zero}, workload::Layout{.tp = 2, .zero = zero},
                                         workload::Layout{.pp = 2, .zero = zero, .microbatches = 4}}) {
      workload::Layout two = base;
      two.dp = 2;
      workload::Layout many = base;
      many.dp = 8;
      const schedules::Step measured = narrow_step_of(two);
      const Prices prices = all_alike(measured);
      const auto all = simulator::play(priced_beyond(narrow_step_of(many), many, measured, two, prices));
      const auto represented = simulator::play(priced_beyond(measured, many, measured, two, prices));
      EXPECT_EQ(all.makespan_ps, represented.makespan_ps) << "zero " << zero << " tp " << base.tp << " pp " << base.pp;
      const auto one = simulator::play(priced_beyond(measured, base, measured, two, prices));
      EXPECT_LT(one.makespan_ps, represented.makespan_ps) << "one replica has no collectives";
    }
  }
}

}  // namespace

}  // namespace lockstep::scaling
