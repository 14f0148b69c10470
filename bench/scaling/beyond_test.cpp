#include "bench/scaling/beyond.h"

#include <gtest/gtest.h>

#include "simulator/contention/contended.h"
#include "trainer/step/train_step.h"

namespace lockstep::scaling {
namespace {

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
