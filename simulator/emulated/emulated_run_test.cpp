#include "simulator/emulated/emulated_run.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "collectives/algorithms/algorithm.h"
#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "schedules/passes/passes.h"
#include "schedules/step/rewrite.h"
#include "schedules/step/step.h"
#include "simulator/engine/engine.h"
#include "simulator/network/topology.h"
#include "testing/core/thrown.h"

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using schedules::GroupKind;
using schedules::Lane;
using schedules::Op;
using schedules::Step;

constexpr std::int64_t kMs = 1'000'000'000;  // in ps

Step step_of(std::string_view name, const schedules::PipelineShape& shape) {
  const schedules::Schedule schedule = schedules::make_schedule(name, shape);
  const schedules::StageCosts costs{kMs / 5, kMs / 5, kMs / 5, 1};
  const auto stages = static_cast<std::size_t>(schedule.num_stages());
  return schedules::lower(schedule, std::vector<schedules::StageCosts>(stages, costs));
}

// Invariants for any wake-up delays: each kernel takes its time, after all tasks that it waits for, lanes are in order,
// and nothing is earlier than simulated.
void expect_legal(const Step& step, const EmulatedRun& run, std::int64_t latency_ps) {
  const Simulation simulated =
      simulate(step, OneSwitch(step.num_ranks(), latency_ps), [](const auto&, const auto&) { return 0; });
  for (std::size_t r = 0; r < run.timeline.size(); ++r) {
    const auto& rank = step.of_rank[r];
    std::array<std::int64_t, schedules::kNumLanes> free_ps = {};
    for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
      const auto& task = rank.tasks[i];
      const auto& span = run.timeline[r][i];
      for (const std::uint32_t earlier : rank.after_of(task)) {
        EXPECT_GE(span.start_ps, run.timeline[r][earlier].end_ps) << r << " " << i;
      }
      EXPECT_GE(span.end_ps, simulated.timeline[r][i].end_ps) << r << " " << i;
      if (task.lane != Lane::compute) continue;
      EXPECT_EQ(span.end_ps - span.start_ps, task.amount);
      std::int64_t& free = free_ps[static_cast<std::size_t>(task.lane)];
      EXPECT_GE(span.start_ps, free);
      free = span.end_ps;
    }
  }
  EXPECT_GE(run.makespan_ns * 1000, simulated.makespan_ps);
}

TEST(EmulatedRun, EverySchedulesTasksRunInOrderAndTakeTheirTime) {
  for (const auto& entry : schedules::catalogue()) {
    const Step step = step_of(entry.name, {4, 8, entry.takes_chunks ? 2 : 1});
    for (const double latency_us : {0.0, 70.0}) {
      EmulationOptions options;
      options.link.latency_us = latency_us;
      expect_legal(step, run_emulated(step, options), static_cast<std::int64_t>(latency_us * 1e6));
    }
  }
}

plan::Plan ring(Comm comm, int ranks) {
  const char* const name = comm == Comm::all_to_all ? "pairwise" : comm == Comm::shift ? "direct" : "ring";
  return algorithms::make_plan(algorithms::parse_choice(kind_of(comm), name), ranks, 0);
}

// A kernel, a collective during a second kernel, and a kernel that waits for both.
Step step_with(Comm comm, std::int64_t bytes, int ranks) {
  Step step{.name = "by hand", .num_microbatches = 1, .stages_per_pipe = 1};
  step.groups.push_back({GroupKind::data, {}});
  for (int r = 0; r < ranks; ++r) {
    schedules::RankWriter out;
    const std::uint32_t first[] = {out.add({.op = Op::forward, .stage = r, .microbatch = 0, .amount = kMs})};
    const std::uint32_t both[] = {
        out.add({.op = Op::reduce_grad, .lane = Lane::reduce, .comm = comm, .peer = 0, .amount = bytes}, first),
        out.add({.op = Op::backward, .stage = r, .microbatch = 0, .amount = kMs})};
    out.add({.op = Op::optimizer, .amount = kMs}, both);
    step.of_rank.push_back(out.take());
    step.groups.front().ranks.push_back(r);
    step.rank_of_stage.push_back(r);
  }
  return step;
}

TEST(EmulatedRun, CollectivesGiveRightDataAndTakeTheTimeOfTheirPlans) {
  constexpr std::int64_t kBytes = 4'000'000;
  EmulationOptions options;
  options.link = {.latency_us = 50, .gbps = 1};
  options.plan_of = ring;
  for (const Comm comm : {Comm::all_reduce, Comm::all_gather, Comm::reduce_scatter, Comm::all_to_all, Comm::shift}) {
    const int ranks = 4;
    const EmulatedRun run = run_emulated(step_with(comm, kBytes, ranks), options);
    const int rounds = (comm == Comm::all_reduce ? 2 : 1) * (ranks - 1);
    const int latencies =
        comm == Comm::all_to_all ? 1 : rounds;  // messages of an all-to-all do not wait for each other
    const std::int64_t ring_ps = comm == Comm::shift ? 50'000'000LL + 1000 * kBytes
                                                     : latencies * 50'000'000LL + rounds * (1000 * kBytes / ranks);
    std::int64_t first_ps = run.timeline[0][1].start_ps;
    for (const auto& rank : run.timeline) first_ps = std::min(first_ps, rank[1].start_ps);
    for (const auto& rank : run.timeline) {
      EXPECT_EQ(rank[1].start_ps, rank[0].end_ps);
      EXPECT_GE(rank[1].end_ps, first_ps + ring_ps) << name_of(comm);
      EXPECT_GE(rank[3].start_ps, rank[1].end_ps);
      EXPECT_LE(rank[2].start_ps, rank[1].end_ps) << "kernels run during collectives";
    }
  }
}

// Offloaded and loaded activations: copies overlap kernels, which wait if a copy is late.
TEST(EmulatedRun, CopiesOfActivationsTakeTheirTimeDuringKernels) {
  Step step = step_of("gpipe", {1, 6, 1});
  schedules::offload_activations(step, std::vector<std::vector<schedules::CopyCosts>>(1, {{1, kMs / 4, kMs / 4}}));
  const EmulatedRun run = run_emulated(step, {});
  expect_legal(step, run, 0);
  int copies = 0;
  for (std::size_t i = 0; i < step.of_rank[0].tasks.size(); ++i) {
    if (!copies_activations(step.of_rank[0].tasks[i])) continue;
    const auto& span = run.timeline[0][i];
    EXPECT_GE(span.end_ps - span.start_ps, kMs / 4);
    ++copies;
  }
  EXPECT_GE(copies, 8);
}

// A whole step: two opposite pipes whose copies of the weights sum their gradients during the backward, then a barrier
// of all ranks, then the optimizer.
TEST(EmulatedRun, APipelineWithReductionsAndABarrierRunsToItsEnd) {
  Step step = step_of("chimera", {4, 4, 1});
  for (std::int32_t r = 0; r < 2; ++r) step.groups.push_back({GroupKind::data, {r, 3 - r}});
  step.groups.push_back({GroupKind::world, {0, 1, 2, 3}});
  const schedules::GradientBucket bucket{.bytes = 100'000};
  const std::vector<std::vector<schedules::GradientBucket>> buckets(step.rank_of_stage.size(), {bucket, bucket});
  schedules::reduce_gradients(step, buckets, {});
  schedules::add_optimizer(step, std::vector<std::int64_t>(4, kMs), schedules::Barrier::norm);
  EmulationOptions options;
  options.link = {.latency_us = 20, .gbps = 1};
  options.plan_of = ring;
  const EmulatedRun run = run_emulated(step, options);
  expect_legal(step, run, 20'000'000);
  // No rank updates before all ranks have all gradients.
  std::int64_t last_gradient_ps = 0;
  std::int64_t first_update_ps = std::numeric_limits<std::int64_t>::max();
  for (std::size_t r = 0; r < run.timeline.size(); ++r) {
    const auto& tasks = step.of_rank[r].tasks;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].op == Op::reduce_grad) last_gradient_ps = std::max(last_gradient_ps, run.timeline[r][i].end_ps);
      if (tasks[i].op == Op::optimizer && tasks[i].lane == Lane::compute) {
        first_update_ps = std::min(first_update_ps, run.timeline[r][i].start_ps);
      }
    }
  }
  EXPECT_GT(last_gradient_ps, 0);
  EXPECT_GE(first_update_ps, last_gradient_ps);
}

TEST(EmulatedRun, AListThatHangsEndsAtTheDeadlineAndReportsWhere) {
  Step step = step_of("1f1b", {2, 4, 1});
  for (auto& task : step.of_rank[0].tasks) {
    if (task.op == Op::send_activations && task.microbatch == 2) task.tag = 77;  // no rank receives this tag
  }
  EmulationOptions options;
  options.deadline = std::chrono::milliseconds(100);
  const core::Error error = core::thrown_by([&] { run_emulated(step, options); });
  EXPECT_EQ(error.failure(), core::Failure::timeout);
  EXPECT_TRUE(core::has(error.what(), "rank"));
  EXPECT_TRUE(core::has(error.what(), "RECV"));
}

TEST(EmulatedRun, AMessageThatIsNotTheOneDueIsWrongData) {
  Step step = step_of("gpipe", {2, 2, 1});
  for (auto& task : step.of_rank[0].tasks) {
    if (task.op == Op::send_activations) task.tag = 1 - task.tag;  // swaps the tags of the two activations
  }
  const core::Error error = core::thrown_by([&] { run_emulated(step, {}); });
  EXPECT_EQ(error.failure(), core::Failure::wrong_data);
  EXPECT_TRUE(core::has(error.what(), "rank 1: 1RECV_F0 from rank 0 got the message"));
}

}  // namespace
}  // namespace lockstep::simulator
