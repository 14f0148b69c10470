#include "schedules/passes/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "schedules/step/breakdown.h"
#include "schedules/step/step.h"
#include "testing/trainer/steps.h"

namespace lockstep::schedules {
namespace {

constexpr std::int32_t kUnits = 4;
constexpr std::int64_t kRanks = 8;
constexpr std::int64_t kUnitBytes = 800;

std::vector<std::vector<Unit>> units_of(const Step& step) {
  std::vector<Unit> units;
  for (std::int32_t u = 0; u < kUnits; ++u) {
    units.push_back({.first_part = u, .parameter_bytes = kUnitBytes, .gradient_bytes = kUnitBytes});
  }
  return {step.rank_of_stage.size(), units};
}
std::vector<std::vector<GradientBucket>> buckets_of_stages(const Step& step) {
  std::vector<std::vector<GradientBucket>> buckets;
  for (const auto& units : units_of(step)) buckets.push_back(buckets_of(units));
  return buckets;
}

Step one_stage(std::int32_t microbatches) {
  return step_of_parts(make_schedule("1f1b", {1, microbatches, 1}), kUnits, kRanks);
}
// Sent bytes in units of psi (n-1)/n, the bytes of all parameters as a ring sends them.
double sent(const Step& step) {
  return count_sent(step)[0].of(GroupKind::data) / (kUnits * kUnitBytes * double{kRanks - 1} / kRanks);
}
Step zero3(std::int32_t microbatches, Keep keep, bool every = true) {
  Step step = one_stage(microbatches);
  reduce_gradients(step, buckets_of_stages(step), {.comm = Comm::reduce_scatter, .every_microbatch = every});
  shard_parameters(step, units_of(step), {.keep = keep});
  return step;
}

// Rajbhandari et al. 2019, section 7, and docs/metrics.md: bytes that each ZeRO stage sends with m microbatches.
TEST(Sharding, BytesOnTheWireAreThoseOfTheFormulas) {
  for (const std::int32_t m : {1, 2, 5}) {
    Step data = one_stage(m);
    reduce_gradients(data, buckets_of_stages(data), {});
    EXPECT_DOUBLE_EQ(sent(data), 2);
    Step zero1 = one_stage(m);
    reduce_gradients(zero1, buckets_of_stages(zero1), {.comm = Comm::reduce_scatter});
    gather_after_step(zero1, units_of(zero1));
    EXPECT_DOUBLE_EQ(sent(zero1), 2);
    Step zero2 = one_stage(m);
    reduce_gradients(zero2, buckets_of_stages(zero2), {.comm = Comm::reduce_scatter, .every_microbatch = true});
    gather_after_step(zero2, units_of(zero2));
    EXPECT_DOUBLE_EQ(sent(zero2), m + 1);
    EXPECT_DOUBLE_EQ(sent(zero3(m, Keep::while_used)), 3 * m);
    EXPECT_DOUBLE_EQ(sent(zero3(m, Keep::until_backward)), 2 * m);
    EXPECT_DOUBLE_EQ(sent(zero3(m, Keep::always)), m + 1);
    EXPECT_DOUBLE_EQ(sent(zero3(m, Keep::always, false)), 2);
  }
}

// ZeRO++'s hpZ: all gathers of backwards, half of all gathers, stay among neighbours.
TEST(Sharding, BackwardsGatherFromTheSecondaryCopy) {
  for (const std::int32_t m : {1, 3}) {
    Step step = one_stage(m);
    step.groups.push_back({GroupKind::secondary, {0}, 2});
    reduce_gradients(step, buckets_of_stages(step), {.comm = Comm::reduce_scatter, .every_microbatch = true});
    shard_parameters(step, units_of(step), {.secondary = true});
    EXPECT_DOUBLE_EQ(sent(step), 2 * m);
    EXPECT_DOUBLE_EQ(count_sent(step)[0].of(GroupKind::secondary), m * kUnits * kUnitBytes / 2.0);
    EXPECT_TRUE(check_step(step, 1).empty());
  }
  Step without = one_stage(1);
  EXPECT_THROW(shard_parameters(without, units_of(without), {.secondary = true}), core::Error) << "no such group";
}

// Bytes that leave a node of 4 of 16 ranks, mean per rank.
TEST(SentBytes, BeyondASwitchOnlyAllToAllsSendWhatEachHas) {
  EXPECT_DOUBLE_EQ(beyond_bytes(Comm::all_gather, 1600, 16, 4), 1600 * 3 / 4.0 / 4);
  EXPECT_DOUBLE_EQ(beyond_bytes(Comm::reduce_scatter, 1600, 16, 4), 1600 * 3 / 4.0 / 4);
  EXPECT_DOUBLE_EQ(beyond_bytes(Comm::all_reduce, 1600, 16, 4), 2 * 1600 * 3 / 4.0 / 4);
  EXPECT_DOUBLE_EQ(beyond_bytes(Comm::all_to_all, 1600, 16, 4), 1600 * 12 / 16.0);
  EXPECT_DOUBLE_EQ(beyond_bytes(Comm::all_gather, 1600, 16, 16), 0);
  for (const Comm comm : {Comm::all_gather, Comm::all_reduce, Comm::all_to_all}) {
    EXPECT_DOUBLE_EQ(beyond_bytes(comm, 1600, 16, 1), wire_bytes(comm, 1600, 16));
  }
}

// A reduction by all-reduce in place of reduce-scatter sends 3 psi, whatever the ZeRO stage is called.
TEST(Sharding, AnAllReduceInPlaceOfAReduceScatterCosts) {
  Step step = one_stage(1);
  reduce_gradients(step, buckets_of_stages(step), {});
  gather_after_step(step, units_of(step));
  EXPECT_DOUBLE_EQ(sent(step), 3);
}

// FSDP's paper, section 3.2.2: across hosts of g GPUs each sends 2 M (W-1)/(g W) for w = W/g hosts.
TEST(Sharding, HybridSendsShardsOnlyAcrossReplicas) {
  constexpr std::int64_t kHosts = 4;
  Step step = one_stage(1);
  step.groups.push_back({GroupKind::replicas, {0}, kHosts});
  reduce_gradients(step, buckets_of_stages(step), {.comm = Comm::reduce_scatter, .over_replicas = true});
  shard_parameters(step, units_of(step), {});
  const SentBytes bytes = count_sent(step)[0];
  EXPECT_DOUBLE_EQ(bytes.of(GroupKind::replicas), 2.0 * kUnits * kUnitBytes / kRanks * (kHosts - 1) / kHosts);
  EXPECT_DOUBLE_EQ(bytes.of(GroupKind::data), 3.0 * kUnits * kUnitBytes * (kRanks - 1) / kRanks);
}

struct Watched {
  int most_in_flight = 0;  // units gathered or being gathered, at any time
  bool used_unready = false;
};

// Follows units through time: held from the start of UNSHARD to RESHARD.
Watched watch(const Step& step, const StepTimeline& timeline, std::size_t rank) {
  Watched watched;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> ready;
  std::vector<std::pair<std::int64_t, int>> changes;
  const auto& tasks = step.of_rank[rank].tasks;
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const TaskSpan span = timeline[rank][i];
    if (tasks[i].op == Op::unshard) changes.push_back({span.start_ps, 1});
    if (tasks[i].op == Op::reshard) changes.push_back({span.end_ps, -1});
  }
  std::sort(changes.begin(), changes.end());  // -1 before +1
  int now = 0;
  for (const auto& [at, change] : changes) watched.most_in_flight = std::max(watched.most_in_flight, now += change);
  // Each use has a gather of its unit that ended before, and no RESHARD since.
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const bool uses = tasks[i].lane == Lane::compute && tasks[i].part >= 0 &&
                      (tasks[i].op == Op::forward || tasks[i].op == Op::backward || tasks[i].op == Op::input_gradient);
    if (!uses) continue;
    std::int64_t gathered = -1;
    std::int64_t given_up = -1;
    for (std::size_t k = 0; k < tasks.size(); ++k) {
      if (tasks[k].stage != tasks[i].stage || tasks[k].part != tasks[i].part) continue;
      if (tasks[k].op == Op::unshard && timeline[rank][k].end_ps <= timeline[rank][i].start_ps) {
        gathered = std::max(gathered, timeline[rank][k].start_ps);
      }
      if (tasks[k].op == Op::reshard && k < i) given_up = std::max(given_up, timeline[rank][k].end_ps);
    }
    if (gathered < 0 || gathered < given_up) watched.used_unready = true;
  }
  return watched;
}

TEST(Sharding, UnitsAreThereWhenUsedAndNoMoreThanTheLimitAtOnce) {
  for_every_schedule(3, [](const CatalogueEntry&, const PipelineShape& shape, const Schedule& schedule) {
    if (shape.microbatches > 6) return;
    for (const std::int32_t in_flight : {1, 2, 3}) {
      for (const bool prefetch : {false, true}) {
        Step step = step_of_parts(schedule, kUnits, kRanks);
        reduce_gradients(step, buckets_of_stages(step), {.comm = Comm::reduce_scatter, .every_microbatch = true});
        shard_parameters(step, units_of(step), {.in_flight = in_flight, .backward_prefetch = prefetch});
        const SimplePrices prices{.collective = [](const Task&) { return 7; }};
        const StepTimeline timeline = play_simply(step, prices);
        for (std::size_t r = 0; r < step.of_rank.size(); ++r) {
          const Watched watched = watch(step, timeline, r);
          EXPECT_LE(watched.most_in_flight, in_flight) << schedule.name;
          EXPECT_FALSE(watched.used_unready) << schedule.name;
        }
      }
    }
  });
}

// One stage, with gathers as long as a forward piece: only the first is exposed if two may be in flight, all if one
// may.
TEST(Sharding, PrefetchHidesGathers) {
  const SimplePrices prices{.collective = [](const Task& task) { return task.op == Op::unshard ? 10 : 0; }};
  const auto end = [&](const ShardingOptions& options) {
    Step step = one_stage(1);
    reduce_gradients(step, buckets_of_stages(step), {.comm = Comm::reduce_scatter});
    shard_parameters(step, units_of(step), options);
    return end_of(play_simply(step, prices));
  };
  const std::int64_t work = std::int64_t{kUnits} * 30;
  // The last unit is freed after its forward and gathered again for its backward, which nothing hides.
  EXPECT_EQ(end({}), work + 10 + 10);
  EXPECT_EQ(end({.keep = Keep::until_backward}), work + 10);
  EXPECT_EQ(end({.in_flight = 1}), work + std::int64_t{kUnits} * 20);
  // Without backward prefetch each gather of a backward is exposed.
  EXPECT_EQ(end({.backward_prefetch = false}), work + 10 + std::int64_t{kUnits} * 10);
}

TEST(Sharding, WholeActionsGatherTheirStageAtOnce) {
  Step step = lower(make_schedule("1f1b", {2, 2, 1}), std::vector<StageCosts>(2, {10, 10, 10, 1}));
  EXPECT_THROW(shard_parameters(step, units_of(step), {}), core::Error);  // no group
  for (std::int32_t r = 0; r < 2; ++r) step.groups.push_back({GroupKind::data, {r}, kRanks});
  shard_parameters(step, units_of(step), {});
  EXPECT_NO_THROW(play_simply(step));
  EXPECT_DOUBLE_EQ(sent(step), 2 * 2);
}

// A held unit is gathered once and never freed; the others are as before.
TEST(Sharding, AHeldUnitStays) {
  Step step = one_stage(3);
  auto units = units_of(step);
  units[0][0].held = true;
  shard_parameters(step, units, {.keep = Keep::while_used});
  std::map<std::pair<Op, std::int32_t>, int> times;
  for (const Task& task : step.of_rank[0].tasks) ++times[{task.op, task.part}];
  EXPECT_EQ((times[{Op::unshard, 0}]), 1);
  EXPECT_EQ((times[{Op::reshard, 0}]), 0);
  EXPECT_GT((times[{Op::unshard, 1}]), 3);
  EXPECT_EQ((times[{Op::reshard, 1}]), (times[{Op::unshard, 1}]));
}

// A unit that backwards do not read is gathered for forwards only, and freed after them.
TEST(Sharding, AUnitOfForwardsIsNotGatheredForBackwards) {
  for (const Keep keep : {Keep::while_used, Keep::until_backward}) {
    Step step = one_stage(3);
    auto units = units_of(step);
    units[0][0].in_backward = false;
    shard_parameters(step, units, {.keep = keep});
    EXPECT_TRUE(check_step(step, 1).empty());
    std::map<std::pair<Op, std::int32_t>, int> times;
    for (const Task& task : step.of_rank[0].tasks) ++times[{task.op, task.part}];
    EXPECT_EQ((times[{Op::unshard, 0}]), 3);
    EXPECT_EQ((times[{Op::reshard, 0}]), 3);
    EXPECT_EQ((times[{Op::unshard, 1}]), keep == Keep::while_used ? 6 : 3);
  }
}

// A unit that is gathered again is freed first: by an edge, as the lanes run concurrently.
TEST(Sharding, AGatherWaitsForTheReshardBeforeIt) {
  for (const std::string_view name : {"1f1b", "gpipe", "zb_h1"}) {
    Step step = step_of_parts(make_schedule(name, {2, 4, 1}), kUnits, kRanks);
    shard_parameters(step, units_of(step), {.keep = Keep::while_used});
    const RankStep& rank = step.of_rank[0];
    std::map<std::int32_t, std::uint32_t> given_up;
    for (std::uint32_t i = 0; i < rank.tasks.size(); ++i) {
      const Task& task = rank.tasks[i];
      if (task.op == Op::reshard) given_up[task.part] = i;
      if (task.op != Op::unshard || !given_up.contains(task.part)) continue;
      const auto after = rank.after_of(task);
      // It waits only for tasks of the compute lane, in which a later task implies the earlier ones.
      EXPECT_TRUE(std::any_of(after.begin(), after.end(), [&](std::uint32_t a) { return a >= given_up[task.part]; }))
          << name << ", unit " << task.part;
    }
  }
}

}  // namespace
}  // namespace lockstep::schedules
