#include "bench/scaling/measure.h"

#include <gtest/gtest.h>

#include "simulator/contention/contended.h"
#include "trainer/step/train_step.h"

namespace lockstep::scaling {
namespace {

using schedules::Comm;
using schedules::Lane;
using schedules::Op;
using schedules::RankStep;
using schedules::Step;
using schedules::Task;

constexpr std::array<bool, schedules::kNumLanes> kReduceBeside{false, false, false, false, false, true, false};

// Each rank: kernels of the given lengths, one after the other.
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
  factor.add(10, 90, 90);  // short ones say little
  factor.add(10, 80, 80);
  factor.add(100, 120, 120);
  EXPECT_DOUBLE_EQ(factor.value(), 1.2);
}

TEST(Slowdowns, LieOnLinesBetweenWhatWasMeasured) {
  Slowdowns slowdowns;
  slowdowns.kernel[Op::forward][2] = factor_of(1.1);
  slowdowns.kernel[Op::forward][4] = factor_of(2.1);
  slowdowns.kernel_beside[Op::backward] = factor_of(1.5);
  EXPECT_DOUBLE_EQ(slowdowns.of_kernel(Op::forward, 1, true), 1);
  EXPECT_DOUBLE_EQ(slowdowns.of_kernel(Op::forward, 2, false), 1.1);
  EXPECT_DOUBLE_EQ(slowdowns.of_kernel(Op::forward, 3, false), 1.6);
  EXPECT_DOUBLE_EQ(slowdowns.of_kernel(Op::forward, 9, false), 2.1);
  EXPECT_DOUBLE_EQ(slowdowns.of_kernel(Op::input_gradient, 2, true), 1.5) << "a backward's family";
  slowdowns.collective[static_cast<std::size_t>(Lane::reduce)] = factor_of(3);
  EXPECT_DOUBLE_EQ(slowdowns.of_collective(Lane::reduce, 0.5), 2);
}

simulator::Simulation contended(const Step& step, const Slowdowns& slowdowns, const simulator::LanesBeside& beside) {
  return play_contended(step, beside, slowdown_of(step, slowdowns, beside));
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

// A collective of 100 beside a kernel of 300: it takes 3 times as long there, the kernel 1.25 times.
TEST(Contended, AKernelAndACollectiveSlowEachOtherDown) {
  Step step{.name = "beside"};
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
  slowdowns.kernel_beside[Op::backward] = factor_of(1.25);
  slowdowns.collective[static_cast<std::size_t>(Lane::reduce)] = factor_of(3);
  const simulator::Simulation played = contended(step, slowdowns, kReduceBeside);
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

schedules::Step step_of(const workload::Layout& layout) {
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
      const schedules::Step measured = step_of(two);
      const schedules::Step step = priced_beyond(step_of(many), many, measured, two, all_alike(measured));
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

}  // namespace
}  // namespace lockstep::scaling
