#include "schedules/step/lower.h"

#include <gtest/gtest.h>

#include <cmath>

#include "schedules/count.h"
#include "schedules/generators/every_schedule.h"
#include "schedules/messages.h"
#include "schedules/play.h"
#include "schedules/step/check_step.h"
#include "schedules/step/simple_play.h"

namespace lockstep::schedules {
namespace {

// A step of whole actions takes as long as the schedule that it was lowered from, with messages in its lists or not.
TEST(Lower, StepsTakeAsLongAsTheirSchedules) {
  for_every_schedule(5, [](const CatalogueEntry&, const PipelineShape&, const Schedule& schedule) {
    const std::int64_t unit = 1200 / schedule.chunks() / schedule.slices();          // they divide 1200
    const Times times{1200, 1200, 1200, evicts_activations(schedule) ? 0.0 : 70.0};  // moves of evicted activations
    const double played = spans_of(schedule, times, play(schedule, times)).makespan;
    for (const Schedule& given : {schedule, with_messages(schedule)}) {
      const Step step = lower(given, std::vector<StageCosts>(num_works(schedule), {unit, unit, unit, 8}));
      EXPECT_EQ(end_of(play_simply(step, {.message_ps = std::llround(times.message)})), std::llround(played))
          << schedule.name;
      EXPECT_TRUE(check_step(step).empty()) << schedule.name;
    }
  });
}

// With Sends::awaited the next computation waits for the message, otherwise not.
TEST(Lower, AwaitedSendsHoldUpTheNextComputation) {
  const Schedule schedule = make_schedule("gpipe", {2, 3, 1});
  const std::vector<StageCosts> costs(2, {10, 10, 10, 8});
  const RankStep free = lower(schedule, costs).of_rank[0];
  const RankStep held = lower(schedule, costs, Sends::awaited).of_rank[0];
  ASSERT_EQ(held.tasks.size(), free.tasks.size());
  ASSERT_EQ(held.tasks[2].op, Op::forward);  // F0, its send, F1
  EXPECT_EQ(free.after_of(free.tasks[2]).size(), 0U);
  ASSERT_EQ(held.after_of(held.tasks[2]).size(), 1U);
  EXPECT_EQ(held.after_of(held.tasks[2])[0], 1U);
}

}  // namespace
}  // namespace lockstep::schedules
