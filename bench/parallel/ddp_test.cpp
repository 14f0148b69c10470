#include <gtest/gtest.h>

#include <algorithm>

#include "bench/parallel/ddp_program.h"
#include "bench/parallel/ddp_run.h"
#include "bench/parallel/ddp_steps.h"
#include "bench/parallel/ddp_text.h"
#include "bench/parallel/ddp_times.h"
#include "core/error.h"
#include "parallel/parameters/store.h"

namespace lockstep::parallel_bench {
namespace {

using schedules::Lane;
using schedules::RankStep;
using schedules::StepTimeline;

DdpFlags small_flags() {
  DdpFlags flags;
  flags.step.program = "ddp_overlap_bench";
  flags.step.options.model = trainer::find_gpt("nano");
  flags.step.options.model.layers = 4;
  flags.step.options.batch = 2;
  flags.step.options.length = 16;
  flags.step.turns = 2;
  flags.step.warm_turns = 1;
  return flags;
}

std::size_t count_of(const RankStep& rank, Lane lane) {
  std::size_t count = 0;
  for (const schedules::Task& task : rank.tasks) count += task.lane == lane ? 1 : 0;
  return count;
}

TEST(DdpSteps, FourWaysOfOneStep) {
  const DdpFlags flags = small_flags();
  const DdpSteps steps = ddp_steps(options_of(flags, {2, 0.1, {}}));
  const RankStep& overlapped = steps.overlapped.of_rank.front();
  EXPECT_GT(count_of(overlapped, Lane::reduce), 2U);
  EXPECT_EQ(count_of(overlapped, Lane::reduce), count_of(steps.one_by_one.of_rank.front(), Lane::reduce));
  EXPECT_EQ(count_of(overlapped, Lane::reduce), steps.collectives.of_rank.front().tasks.size());
  EXPECT_EQ(count_of(overlapped, Lane::compute), steps.kernels.of_rank.front().tasks.size());
}

// Kernels of 1 ms, one after the other, and collectives of `each_ms`.
StepTimeline timeline_of(const schedules::Step& step, double each_ms) {
  StepTimeline timeline;
  for (const RankStep& rank : step.of_rank) {
    auto& spans = timeline.emplace_back();
    std::int64_t at = 0;
    for (const schedules::Task& task : rank.tasks) {
      const auto takes = static_cast<std::int64_t>(1e9 * (task.lane == Lane::compute ? 1 : each_ms));
      spans.push_back({at, at + takes});
      at += takes;
    }
  }
  return timeline;
}

TEST(DdpTimes, TheRecurrenceOfWhatIsThere) {
  const DdpSteps steps = ddp_steps(options_of(small_flags(), {2, 0.1, {}}));
  const StepTimeline kernels = timeline_of(steps.kernels, 1);
  const std::vector<double> ready = ready_ms(steps, kernels);
  const auto all = static_cast<double>(steps.kernels.of_rank.front().tasks.size());
  EXPECT_TRUE(std::is_sorted(ready.begin(), ready.end()));
  EXPECT_DOUBLE_EQ(ready.back(), all - 1);  // the optimizer is behind it
  EXPECT_DOUBLE_EQ(predicted_ms(steps, kernels, timeline_of(steps.collectives, 0)), all);
  // Collectives so long that they follow each other from the first that is ready on.
  const auto buckets = static_cast<double>(ready.size());
  EXPECT_NEAR(predicted_ms(steps, kernels, timeline_of(steps.collectives, 1000)), ready.front() + 1000 * buckets + 1,
              1e-6);
  EXPECT_LT(backward_ms(steps.kernels, kernels), all);
}

TEST(DdpRun, GradientsAreThoseWithoutOverlapAndThoseOfOneRank) {
  for (const core::DType gradient : {core::DType::f32, core::DType::bf16}) {
    DdpFlags flags = small_flags();
    flags.step.options.compute = core::DType::bf16;
    flags.step.options.layout.gradient = gradient;
    flags.step.options.layout.microbatches = 2;
    const DdpResult result = run_ddp(flags, {3, 0.1, {}});
    EXPECT_EQ(result.wrong, 0);
    EXPECT_TRUE(result.in_planned_order);
    EXPECT_EQ(result.turns.step_ms.size(), 2U);
    EXPECT_DOUBLE_EQ(result.sent_bytes, static_cast<double>(result.gradient_bytes) * 4 / 3);
  }
}

TEST(DdpRun, ABucketThatIsOffByOneBitIsSeen) {
  const auto tamper = [](trainer::RankModel& model) {
    if (model.rank() != 1) return;
    const kernels::InOut gradient = model.stages().front().store->own_gradient_of(2);
    auto* const first = static_cast<std::uint8_t*>(gradient.data);
    *first = static_cast<std::uint8_t>(*first ^ 1U);
  };
  EXPECT_EQ(run_ddp(small_flags(), {2, 0.1, {}}, tamper).wrong, 2);  // one element a turn
}

TEST(DdpFlags, LinksAndRefusals) {
  const auto parsed = [](std::vector<const char*> words) {
    words.insert(words.begin(), "ddp_overlap_bench");
    return std::get<DdpFlags>(parse_ddp_flags(static_cast<int>(words.size()), words.data()));
  };
  const DdpFlags flags = parsed({"--link", "none;latency_us=5,gbps=2", "--bucket-cap-mb", "0,25", "--dp", "2,4"});
  ASSERT_EQ(ddp_cases(flags).size(), 8U);
  EXPECT_EQ(link_text(flags.links[0]), "none");
  EXPECT_EQ(link_text(flags.links[1]), "5, 2");
  EXPECT_THROW(parsed({"--dp", "1,2"}), core::Error);
  EXPECT_THROW(parsed({"--link", "fast"}), core::Error);
}

}  // namespace
}  // namespace lockstep::parallel_bench
