#include "schedules/passes/passes.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/random.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/step.h"
#include "testing/trainer/steps.h"

namespace lockstep::schedules {
namespace {

void add_block(std::vector<Parameter>& to, std::int64_t in, std::int64_t out, std::int64_t stride) {
  to.insert(to.end(), {{out * in * 9}, {out}, {out}, {out * out * 9}, {out}, {out}});
  if (stride != 1) to.insert(to.end(), {{out * in}, {out}, {out}});
}

// In the order of parameters(): He et al. 2015 (arXiv:1512.03385), table 1, with batch normalisation.
std::vector<Parameter> resnet18() {
  std::vector<Parameter> parameters{{9408}, {64}, {64}};
  std::int64_t in = 64;
  for (const std::int64_t out : {64, 128, 256, 512}) {
    add_block(parameters, in, out, out / in);
    add_block(parameters, out, out, 1);
    in = out;
  }
  parameters.insert(parameters.end(), {{512'000}, {1000}});
  return parameters;
}

// Bucket sizes that PyTorch reports for ResNet-18 with its default cap (pytorch/pytorch issue #48880): 2.05, 28.85 and
// 15.85 MB.
TEST(Buckets, OfResNet18AreThoseOfPyTorch) {
  const auto buckets = gradient_buckets(resnet18(), ddp_rules());
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_NEAR(static_cast<double>(buckets[0].bytes) / 1e6, 2.05, 0.005);
  EXPECT_NEAR(static_cast<double>(buckets[1].bytes) / 1e6, 28.85, 0.005);
  EXPECT_NEAR(static_cast<double>(buckets[2].bytes) / 1e6, 15.85, 0.01);
  EXPECT_EQ(buckets[0].bytes + buckets[1].bytes + buckets[2].bytes, 4 * 11'689'512);
}

// torch 2.2: _compute_bucket_assignment_by_size of three Linear(512, 512), in the order given, limits 1 MiB and 1 MiB:
// [[0], [1, 2], [3, 4], [5]].
TEST(Buckets, AreFullOnceTheyReachTheirLimit) {
  std::vector<Parameter> backwards;
  for (const std::int64_t elements : {512, 512 * 512, 512, 512 * 512, 512, 512 * 512}) backwards.push_back({elements});
  const auto buckets = gradient_buckets(backwards, ddp_rules(1 << 20));
  ASSERT_EQ(buckets.size(), 4U);
  EXPECT_EQ(buckets[0].parameters, std::vector<std::size_t>({5}));
  EXPECT_EQ(buckets[1].parameters, std::vector<std::size_t>({4, 3}));
  EXPECT_EQ(buckets[2].parameters, std::vector<std::size_t>({2, 1}));
  EXPECT_EQ(buckets[3].parameters, std::vector<std::size_t>({0}));
}

TEST(Buckets, OneBucketHasNoLimit) {
  const std::vector<Parameter> parameters(100, {10'000'000, 4});
  ASSERT_EQ(gradient_buckets(parameters, one_bucket()).size(), 1U);
  EXPECT_EQ(gradient_buckets(parameters, one_bucket()).front().bytes, 4'000'000'000);
}

TEST(Buckets, KindsOfGradientsDoNotMix) {
  const std::vector<Parameter> parameters{
      {300'000, 4, 0}, {300'000, 2, 0}, {10, 4, 1, GroupKind::expert_data}, {300'000, 4, 1}, {300'000, 2, 1}};
  const auto buckets = gradient_buckets(parameters, ddp_rules(1 << 20));
  ASSERT_EQ(buckets.size(), 4U);
  EXPECT_EQ(buckets[0].parameters, std::vector<std::size_t>({4, 1}));  // the first to begin, though not full
  EXPECT_EQ(buckets[0].part, 0);
  EXPECT_EQ(buckets[1].parameters, std::vector<std::size_t>({3}));  // 1.2 MB
  EXPECT_EQ(buckets[1].part, 1);
  EXPECT_EQ(buckets[2].group, GroupKind::expert_data);
  EXPECT_EQ(buckets[3].parameters, std::vector<std::size_t>({0}));
}

TEST(Buckets, HoldEveryParameterOnceAndOnlyTheLastIsSmall) {
  core::Random random(11);
  for (int k = 0; k < 200; ++k) {
    std::vector<Parameter> parameters;
    const auto count = 1 + random.below(60);
    for (std::uint64_t i = 0; i < count; ++i) {
      parameters.push_back({static_cast<std::int64_t>(1 + random.below(4'000'000)), 4});
    }
    const auto cap = static_cast<std::int64_t>(1 + random.below(std::uint64_t{30} << 20));
    const auto buckets = gradient_buckets(parameters, ddp_rules(cap));
    std::vector<std::size_t> seen;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      const std::int64_t limit = b == 0 ? kDdpFirstBucketBytes : cap;
      const std::int64_t last = 4 * parameters[buckets[b].parameters.back()].elements;
      EXPECT_LT(buckets[b].bytes - last, limit);
      EXPECT_TRUE(b + 1 == buckets.size() || buckets[b].bytes >= limit);
      seen.insert(seen.end(), buckets[b].parameters.rbegin(), buckets[b].parameters.rend());
    }
    std::sort(seen.begin(), seen.end());
    std::vector<std::size_t> all(parameters.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    EXPECT_EQ(seen, all);
  }
}

constexpr std::int32_t kParts = 4;

Step parts_of(const Schedule& schedule) {
  return step_of_parts(schedule, kParts, 4);
}

// A bucket for the upper two parts, then one for the lower two.
std::vector<std::vector<GradientBucket>> two_buckets(const Step& step) {
  return {step.rank_of_stage.size(), {{.bytes = 100, .part = 2}, {.bytes = 60, .part = 0}}};
}

struct Reduction {
  std::int64_t start = 0;
  std::int64_t end = 0;
};
std::vector<Reduction> reductions(const Step& step, const StepTimeline& timeline) {
  std::vector<Reduction> all;
  for (std::size_t i = 0; i < step.of_rank[0].tasks.size(); ++i) {
    if (step.of_rank[0].tasks[i].op != Op::reduce_grad) continue;
    all.push_back({timeline[0][i].start_ps, timeline[0][i].end_ps});
  }
  return all;
}

std::int64_t count_reductions(const RankStep& rank) {
  return std::count_if(rank.tasks.begin(), rank.tasks.end(),
                       [](const Task& task) { return task.op == Op::reduce_grad; });
}

// end_k = max(end_{k-1}, ready_k) + duration_k (docs/metrics.md, "Gradient buckets").
TEST(ReduceGradients, OverlapIsThatOfOneStreamOfBuckets) {
  Step step = parts_of(make_schedule("1f1b", {1, 2, 1}));  // F0 B0 F1 B1: the last backward takes 160 .. 240
  reduce_gradients(step, two_buckets(step), {});
  SimplePrices prices{.collective = [](const Task& task) { return task.amount; }};
  const auto all = reductions(step, play_simply(step, prices));
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].start, 200);
  EXPECT_EQ(all[0].end, 300);
  EXPECT_EQ(all[1].start, 300);  // ready at 240
  EXPECT_EQ(all[1].end, 360);
}

TEST(ReduceGradients, WithoutOverlapAllBucketsWaitForTheEnd) {
  Step step = parts_of(make_schedule("1f1b", {1, 2, 1}));
  reduce_gradients(step, two_buckets(step), {.overlapped = false});
  SimplePrices prices{.collective = [](const Task& task) { return task.amount; }};
  EXPECT_EQ(reductions(step, play_simply(step, prices))[0].start, 240);

  Step each = parts_of(make_schedule("1f1b", {1, 2, 1}));
  reduce_gradients(each, two_buckets(each), {.every_microbatch = true, .overlapped = false});
  const StepTimeline timeline = play_simply(each, prices);
  const auto all = reductions(each, timeline);
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].start, 120);
  EXPECT_EQ(all[1].end, 280);
  EXPECT_EQ(all[2].start, 280 + 120);  // the second microbatch waited for the first's
}

// In every schedule each bucket of each stage is reduced once (or once per microbatch), never before all of its
// gradients.
TEST(ReduceGradients, NothingLeavesBeforeItsGradients) {
  for_every_schedule(4, [&](const CatalogueEntry&, const PipelineShape&, const Schedule& schedule) {
    for (const bool every : {false, true}) {
      Step step = parts_of(schedule);
      reduce_gradients(step, two_buckets(step), {.comm = Comm::reduce_scatter, .every_microbatch = every});
      const StepTimeline timeline = play_simply(step);
      for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
        const auto& tasks = step.of_rank[r].tasks;
        std::int64_t stages = std::count(step.rank_of_stage.begin(), step.rank_of_stage.end(), r);
        const std::int64_t times = every ? schedule.num_microbatches / schedule.slices() / schedule.num_pipes() : 1;
        EXPECT_EQ(count_reductions(step.of_rank[r]), stages * 2 * times) << schedule.name;
        for (std::size_t i = 0; i < tasks.size(); ++i) {
          if (tasks[i].op != Op::reduce_grad) continue;
          const std::int32_t lowest = tasks[i].part == 0 ? 2 : 0;
          for (std::size_t k = 0; k < tasks.size(); ++k) {
            const bool gives = tasks[k].op == Op::backward || tasks[k].op == Op::weight_gradient;
            if (!gives || tasks[k].stage != tasks[i].stage || tasks[k].part < lowest) continue;
            if (every && tasks[k].microbatch / step.slices != tasks[i].microbatch / step.slices) continue;
            EXPECT_LE(timeline[r][k].end_ps, timeline[r][i].start_ps) << schedule.name;
          }
        }
      }
    }
  });
}

// Opposite pipes: the ranks at either end have the same stages.
TEST(ReduceGradients, ShardsAreSummedOverReplicas) {
  Step step = parts_of(make_schedule("dualpipe", {4, 8, 1}));
  add_groups_of_ends(step, GroupKind::replicas);
  reduce_gradients(step, two_buckets(step), {.comm = Comm::reduce_scatter, .over_replicas = true});
  EXPECT_EQ(count_reductions(step.of_rank[0]), 2 * 2 * 2);
  std::vector<std::int64_t> sizes;
  for (const Task& task : step.of_rank[0].tasks) {
    if (task.op == Op::reduce_grad && task.comm == Comm::all_reduce) sizes.push_back(task.amount);
  }
  EXPECT_EQ(sizes, std::vector<std::int64_t>({25, 15, 25, 15}));
  EXPECT_NO_THROW(play_simply(step));
}

// Two real ranks per listed rank, and two replicas: a bucket takes 10 ps among its shards and 100 ps over replicas.
TEST(ReduceGradients, SumsOverReplicasRunDuringTheNextBucketsReduction) {
  Step step = parts_of(make_schedule("1f1b", {1, 2, 1}));
  step.groups.push_back({GroupKind::replicas, {0}, 2});
  step.groups.push_back({GroupKind::world, {0}, 4});
  reduce_gradients(step, two_buckets(step), {.comm = Comm::reduce_scatter, .over_replicas = true});
  reduce_at_end(step, GroupKind::world, 8);
  add_optimizer(step, std::vector<std::int64_t>(1, 5), Barrier::norm);
  const RankStep& rank = step.of_rank[0];
  const StepTimeline timeline = play_simply(step, {.collective = [](const Task& task) {
                                              if (task.op == Op::optimizer) return 0;
                                              return task.lane == Lane::replicas ? 100 : 10;
                                            }});
  std::vector<TaskSpan> in_set;
  std::vector<TaskSpan> over_replicas;
  TaskSpan at_end;
  for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
    if (rank.tasks[i].op != Op::reduce_grad) continue;
    if (rank.tasks[i].part < 0) at_end = timeline[0][i];
    if (rank.tasks[i].comm == Comm::reduce_scatter) in_set.push_back(timeline[0][i]);
    if (rank.tasks[i].lane == Lane::replicas) over_replicas.push_back(timeline[0][i]);
  }
  ASSERT_EQ(in_set.size(), 2U);
  ASSERT_EQ(over_replicas.size(), 2U);
  EXPECT_EQ(over_replicas[0].start_ps, in_set[0].end_ps);
  EXPECT_LT(in_set[1].end_ps, over_replicas[0].end_ps) << "not held up";
  EXPECT_EQ(over_replicas[1].start_ps, over_replicas[0].end_ps);
  EXPECT_EQ(at_end.start_ps, over_replicas[1].end_ps) << "sums of the whole step wait for all";
  EXPECT_EQ(timeline[0].back().end_ps, at_end.end_ps + 5);
  // Nothing else runs from the last kernel to the optimizer.
  const Breakdown parts = breakdown_of(step, timeline)[0];
  EXPECT_EQ(parts.bubble_ps, 0);
  EXPECT_EQ(parts.exposed_reductions_ps(), timeline[0].back().start_ps - parts.compute_ps() + 5);
}

TEST(ReduceGradients, AStageThatIsNotInPiecesGivesAllAtItsEnd) {
  Step step = lower(make_schedule("zb_h1", {2, 4, 1}), std::vector<StageCosts>(2, {10, 10, 10, 1}));
  for (std::int32_t r = 0; r < 2; ++r) step.groups.push_back({GroupKind::data, {r}, 4});
  reduce_gradients(step, two_buckets(step), {});
  EXPECT_EQ(count_reductions(step.of_rank[0]), 2);
  Step without = lower(make_schedule("zb_h1", {2, 4, 1}), std::vector<StageCosts>(2));
  EXPECT_THROW(reduce_gradients(without, two_buckets(without), {}), core::Error);
}

TEST(ReduceGradients, TheEmbeddingIsSummedOverFirstAndLastStage) {
  Step step = parts_of(make_schedule("1f1b", {3, 4, 1}));
  step.groups.push_back({GroupKind::embedding, {0, 2}});
  reduce_at_end(step, GroupKind::embedding, 500);
  EXPECT_EQ(count_reductions(step.of_rank[0]), 1);
  EXPECT_EQ(count_reductions(step.of_rank[1]), 0);
  const StepTimeline timeline = play_simply(step);
  EXPECT_EQ(timeline[2].back().start_ps, end_of(timeline));  // when rank 0 has its last gradient
}

}  // namespace
}  // namespace lockstep::schedules
