#include "simulator/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "core/error.h"
#include "schedules/generators/catalogue.h"
#include "schedules/play.h"
#include "schedules/step/rewrite.h"
#include "schedules/step/step.h"
#include "simulator/engine/contended.h"
#include "simulator/engine/program.h"
#include "testing/core/thrown.h"
#include "testing/trainer/steps.h"

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using schedules::GroupKind;
using schedules::Lane;
using schedules::Op;
using schedules::RankWriter;
using schedules::Schedule;
using schedules::StageCosts;
using schedules::Step;
using schedules::Task;

constexpr std::int64_t kUnit = 12000;  // ps; every number of chunks in the tests divides it

std::int64_t no_collectives(const schedules::Group&, const schedules::Task&) {
  return 0;
}

Step lowered(const Schedule& schedule, const schedules::Times& times, std::int64_t message_bytes = 0) {
  const auto part = [&](double time) {
    return static_cast<std::int64_t>(time * kUnit) / schedule.chunks() / schedule.slices();
  };
  const std::vector<StageCosts> costs(schedules::num_works(schedule), {part(times.forward), part(times.input_gradient),
                                                                       part(times.weight_gradient), message_bytes});
  return schedules::lower(schedule, costs);
}

std::int64_t simulated_ps(const Step& step, double latency) {
  const OneSwitch network(step.num_ranks(), static_cast<std::int64_t>(latency * kUnit));
  return simulate(step, network, no_collectives).makespan_ps;
}

// A kernel of 100 ps, and concurrent collectives in two lanes with the given times.
std::int64_t kernel_during_collectives(std::int64_t first_ps, std::int64_t second_ps, double taken,
                                       const TakesNone& takes_none = {}) {
  Step step{.name = "overlap", .groups = {{GroupKind::data, {0}}}};
  RankWriter rank;
  rank.add({.op = Op::forward, .amount = 100});
  for (const Lane lane : {Lane::gather, Lane::reduce}) {
    rank.add({.op = Op::reduce_grad,
              .lane = lane,
              .comm = Comm::all_reduce,
              .peer = 0,
              .amount = lane == Lane::gather ? first_ps : second_ps});
  }
  step.of_rank.push_back(rank.take());
  const auto as_amount = [](const schedules::Group&, const schedules::Task& task) { return task.amount; };
  const Simulation run = simulate(step, OneSwitch(1, 0), as_amount, taken, takes_none);
  EXPECT_EQ(run.events, 3);
  return run.timeline[0][0].end_ps;
}

TEST(Engine, CollectivesTakeTheirPartOfTheKernelDuringThem) {
  EXPECT_EQ(kernel_during_collectives(50, 50, 0), 100);
  EXPECT_EQ(kernel_during_collectives(50, 0, 0.2), 110) << "50 at 0.8 of its rate";
  EXPECT_EQ(kernel_during_collectives(1000, 0, 0.2), 125) << "all of it";
  EXPECT_EQ(kernel_during_collectives(50, 50, 0.2), 120) << "two take twice as much";
  const auto the_longer = [](const schedules::Task& task) { return task.amount == 60; };
  EXPECT_EQ(kernel_during_collectives(60, 50, 0.2, the_longer), 110) << "the longer one takes nothing";
  EXPECT_EQ(kernel_during_collectives(60, 0, 0.2, the_longer), 100);
  EXPECT_EQ(kernel_during_collectives(1000, 1000, 0.9), 1000) << "at a tenth of its rate, not less";
}

TEST(Engine, EventsComeInOrder) {
  EventQueue queue;
  std::mt19937_64 random(7);
  std::multiset<std::pair<std::int64_t, std::uint64_t>> expected;
  for (int i = 0; i < 20000; ++i) {
    if (random() % 3 != 0 || queue.empty()) {
      const Event event{static_cast<std::int64_t>(random() % 500), random() % 50};
      queue.push(event);
      expected.emplace(event.time_ps, event.code);
    } else {
      const Event event = queue.pop();
      ASSERT_EQ(*expected.begin(), (std::pair{event.time_ps, event.code}));
      expected.erase(expected.begin());
    }
  }
}

// Tasks of one rank in one lane, with their picoseconds on the device and on the host.
std::vector<schedules::TaskSpan> spans_of_issued(std::vector<schedules::Task> tasks) {
  Step step;
  step.of_rank.resize(1);
  step.of_rank[0].tasks = std::move(tasks);
  const OneSwitch network(1, 0);
  return simulate(step, network, no_collectives).timeline[0];
}

TEST(EngineHost, RunsAheadOfLongKernelsAndHoldsUpShortOnes) {
  const auto spans = spans_of_issued(
      {{.amount = 100, .issue_ps = 10}, {.amount = 1, .issue_ps = 200}, {.amount = 50, .issue_ps = 10}});
  EXPECT_EQ(spans[0].end_ps, 100);
  EXPECT_EQ(spans[1].end_ps, 210);  // its last kernel is issued then
  EXPECT_EQ(spans[2].start_ps, 210);
  EXPECT_EQ(spans[2].end_ps, 260);
}

TEST(EngineHost, CollectiveStartsWhenItIsIssued) {
  Step step;
  step.of_rank.resize(1);
  step.of_rank[0].tasks = {
      {.op = Op::layer_collective, .lane = Lane::tensor, .comm = Comm::all_reduce, .peer = 0, .issue_ps = 30}};
  step.groups = {{.kind = GroupKind::tensor, .ranks = {0}}};
  const OneSwitch network(1, 0);
  EXPECT_EQ(simulate(step, network, no_collectives).timeline[0][0].start_ps, 30);
}

TEST(EngineHost, IssuesNothingMoreBeforeWhatItWaitsFor) {
  const auto spans = spans_of_issued({{.host_waits = true, .amount = 100, .issue_ps = 10},
                                      {.amount = 5, .issue_ps = 40},
                                      {.amount = 50, .issue_ps = 10}});
  EXPECT_EQ(spans[1].end_ps, 140);
  EXPECT_EQ(spans[2].end_ps, 190);
}

// Pipelines whose hosts wait for each message finish, and no earlier than without hosts.
TEST(EngineHost, LetsEveryScheduleEnd) {
  schedules::for_every_schedule(
      6, [&](const schedules::CatalogueEntry&, const schedules::PipelineShape&, const Schedule& schedule) {
        Step step = lowered(schedule, {1, 1, 1, 0});
        const std::int64_t without = simulated_ps(step, 0.25);
        for (schedules::RankStep& rank : step.of_rank) {
          for (schedules::Task& task : rank.tasks) {
            task.issue_ps = kUnit / 12;
            task.host_waits = task.lane == Lane::receive;
          }
        }
        EXPECT_GE(simulated_ps(step, 0.25), without) << schedule.name;
      });
}

TEST(Engine, AgreesWithPlayOnEverySchedule) {
  int tried = 0;
  for (const schedules::Times& times :
       {schedules::Times{1, 1, 1, 0}, schedules::Times{1, 2, 1, 0.25}, schedules::Times{3, 2, 4, 1}}) {
    schedules::for_every_schedule(
        6, [&](const schedules::CatalogueEntry&, const schedules::PipelineShape&, const Schedule& schedule) {
          const auto spans = schedules::spans_of(schedule, times, schedules::play(schedule, times));
          EXPECT_NEAR(spans.makespan * kUnit,
                      static_cast<double>(simulated_ps(lowered(schedule, times), times.message)), 1e-6)
              << schedule.name;
          ++tried;
        });
  }
  EXPECT_GT(tried, 300);
}

// One rank, two concurrent tasks, and one that waits for both.
TEST(Engine, LanesRunSideBySideAndEdgesWait) {
  RankWriter rank;
  const std::uint32_t kernel = rank.add({.op = Op::forward, .amount = 30});
  const std::uint32_t copy = rank.add({.op = Op::offload, .lane = Lane::copy, .amount = 50});
  const std::uint32_t both[] = {kernel, copy};
  rank.add({.op = Op::backward, .amount = 5}, both);
  Step step{.name = "lanes", .of_rank = {rank.take()}};
  const Simulation run = simulate(step, OneSwitch(1, 0), no_collectives);
  EXPECT_EQ(run.timeline[0][1].end_ps, 50);
  EXPECT_EQ(run.timeline[0][2].start_ps, 50);
  EXPECT_EQ(run.makespan_ps, 55);
}

// Rank 0 sends two messages of 10 bytes at 2 ps per byte: the port carries them sequentially.
Step two_messages() {
  RankWriter sender;
  for (std::int32_t tag : {0, 1}) {
    sender.add({.op = Op::send_activations, .lane = Lane::send, .stage = tag, .peer = tag + 1, .tag = 0, .amount = 10});
  }
  Step step{.name = "messages", .of_rank = {sender.take()}};
  for (int receiver = 0; receiver < 2; ++receiver) {
    RankWriter rank;
    rank.add({.op = Op::recv_activations, .lane = Lane::receive, .peer = 0, .tag = 0, .amount = 10});
    step.of_rank.push_back(rank.take());
  }
  return step;
}

TEST(Engine, APortCarriesOneMessageAtATime) {
  const Step step = two_messages();
  const Simulation run = simulate(step, OneSwitch(3, 100, {.ps_per_byte = 2}), no_collectives);
  EXPECT_EQ(run.timeline[0][0].end_ps, 20);
  EXPECT_EQ(run.timeline[0][1].end_ps, 40);
  EXPECT_EQ(run.timeline[1][0].end_ps, 120);
  EXPECT_EQ(run.timeline[2][0].start_ps, 20);
  EXPECT_EQ(run.timeline[2][0].end_ps, 140);
}

// Ranks 0 and 1 send 10 and 30 bytes to rank 2 at once, at 2 ps per byte. Shared fairly, the short one takes 40 ps, and
// the long one has its last 20 bytes alone: 40 + 40.
Step two_senders() {
  Step step{.name = "senders", .of_rank = {}};
  for (std::int32_t sender = 0; sender < 2; ++sender) {
    RankWriter rank;
    rank.add(
        {.op = Op::send_activations, .lane = Lane::send, .peer = 2, .tag = sender, .amount = sender == 0 ? 10 : 30});
    step.of_rank.push_back(rank.take());
  }
  RankWriter receiver;
  for (std::int32_t tag : {0, 1}) {
    receiver.add({.op = Op::recv_activations, .lane = Lane::receive, .peer = tag, .tag = tag});
  }
  step.of_rank.push_back(receiver.take());
  return step;
}

TEST(Engine, AFairPortIsSharedEvenly) {
  const Step step = two_senders();
  const Simulation fair = simulate(step, OneSwitch(3, 7, {.ps_per_byte = 2, .fair = true}), no_collectives);
  EXPECT_EQ(fair.timeline[0][0].end_ps, 40);
  EXPECT_EQ(fair.timeline[1][0].end_ps, 80);
  EXPECT_EQ(fair.timeline[2][0].end_ps, 47);
  EXPECT_EQ(fair.timeline[2][1].end_ps, 87);
  const Simulation in_turn = simulate(step, OneSwitch(3, 7, {.ps_per_byte = 2}), no_collectives);
  EXPECT_EQ(in_turn.timeline[2][0].end_ps, 27);
  EXPECT_EQ(in_turn.timeline[2][1].end_ps, 87);
}

TEST(Engine, ACollectiveStartsWithItsLastMember) {
  Step step{.name = "collective", .groups = {{GroupKind::data, {0, 1}}}};
  for (const std::int64_t before : {10, 40}) {
    RankWriter rank;
    const std::uint32_t ready[] = {rank.add({.op = Op::backward, .amount = before})};
    rank.add({.op = Op::reduce_grad, .lane = Lane::reduce, .comm = Comm::all_reduce, .peer = 0, .amount = 100}, ready);
    step.of_rank.push_back(rank.take());
  }
  const auto a_byte_a_ps = [](const schedules::Group&, const schedules::Task& task) { return task.amount; };
  const Simulation run = simulate(step, OneSwitch(2, 0), a_byte_a_ps);
  for (const auto& rank : run.timeline) {
    EXPECT_EQ(rank[1].start_ps, 40);
    EXPECT_EQ(rank[1].end_ps, 140);
  }
}

TEST(Engine, AGroupMayMeetInTwoLanesAtOnce) {
  Step step{.name = "lanes", .groups = {{GroupKind::data, {0, 1}}}};
  for (const std::int64_t before : {10, 40}) {
    RankWriter rank;
    rank.add({.op = Op::unshard, .lane = Lane::gather, .comm = Comm::all_gather, .peer = 0, .amount = 100});
    const std::uint32_t ready[] = {rank.add({.op = Op::backward, .amount = before})};
    rank.add({.op = Op::reduce_grad, .lane = Lane::reduce, .comm = Comm::all_reduce, .peer = 0, .amount = 5}, ready);
    step.of_rank.push_back(rank.take());
  }
  const auto a_byte_a_ps = [](const schedules::Group&, const schedules::Task& task) { return task.amount; };
  const Simulation run = simulate(step, OneSwitch(2, 0), a_byte_a_ps);
  for (const auto& rank : run.timeline) {
    EXPECT_EQ(rank[0].end_ps, 100);
    EXPECT_EQ(rank[2].end_ps, 45);
  }
}

TEST(Engine, RanksThatWaitForEachOtherAreNamed) {
  Step step{.name = "circle.csv", .of_rank = {}};
  for (std::int32_t peer : {1, 0}) {
    RankWriter rank;
    const std::uint32_t there[] = {rank.add({.op = Op::recv_activations,
                                             .lane = Lane::receive,
                                             .stage = 1 - peer,
                                             .microbatch = 3,
                                             .peer = peer,
                                             .tag = 0})};
    rank.add({.op = Op::send_activations, .lane = Lane::send, .peer = peer, .tag = 0, .amount = 1}, there);
    step.of_rank.push_back(rank.take());
  }
  EXPECT_TRUE(core::has(core::error_text([&] { simulate(step, OneSwitch(2, 0), no_collectives); }),
                        "circle.csv: deadlock: rank 0, lane receive, at 0RECV_F3 from rank 1"));
}

TEST(Engine, RepeatsExactly) {
  const Schedule schedule = schedules::make_schedule("interleaved", {4, 16, 3});
  const Step step = lowered(schedule, {1, 1.5, 0.5, 0}, 3000);
  const OneSwitch network(4, 40, {.ps_per_byte = 3, .fair = true});
  const Simulation first = simulate(step, network, no_collectives);
  const Simulation second = simulate(step, network, no_collectives);
  for (std::size_t r = 0; r < first.timeline.size(); ++r) {
    for (std::size_t i = 0; i < first.timeline[r].size(); ++i) {
      ASSERT_EQ(first.timeline[r][i].end_ps, second.timeline[r][i].end_ps);
    }
  }
}

// One kernel of the given picoseconds per rank.
Step kernels(const std::vector<std::int64_t>& ps) {
  Step step{.name = "kernels"};
  for (const std::int64_t amount : ps) step.of_rank.emplace_back().tasks = {{.op = Op::forward, .amount = amount}};
  return step;
}

// Two cores, shared equally by the ranks that compute.
double on_two_cores(std::int32_t, std::size_t, const Concurrent& concurrent) {
  return std::max(1.0, (concurrent.kernels + concurrent.collectives) / 2.0);
}

TEST(Contended, WhatHasCoresOfItsOwnTakesAsLongAsAlone) {
  const Step step = kernels({300'000, 100'000});
  EXPECT_EQ(play(step).makespan_ps, 300'000);
  EXPECT_EQ(play_contended(step, {}, on_two_cores).makespan_ps, 300'000);
}

TEST(Contended, ThreeKernelsShareTwoCores) {
  EXPECT_NEAR(static_cast<double>(play_contended(kernels({100'000, 100'000, 100'000}), {}, on_two_cores).makespan_ps),
              150'000, 20);
  // All three run at 2/3 until 150, when the short one has ended; then the others have a core each.
  const Simulation played = play_contended(kernels({100'000, 200'000, 200'000}), {}, on_two_cores);
  EXPECT_NEAR(static_cast<double>(played.timeline[0][0].end_ps), 150'000, 200);
  EXPECT_NEAR(static_cast<double>(played.makespan_ps), 250'000, 300);
}

// A collective of both ranks in threads of its own takes cores from their kernels; one in the ranks' threads does not.
TEST(Contended, CollectivesDuringKernelsTakeCores) {
  const auto step = [](Lane lane) {
    Step overlapped = kernels({100'000, 100'000});
    overlapped.groups.push_back({schedules::GroupKind::data, {0, 1}});
    for (schedules::RankStep& rank : overlapped.of_rank) {
      rank.tasks.push_back(
          {.op = Op::reduce_grad, .lane = lane, .comm = schedules::Comm::all_reduce, .peer = 0, .amount = 100'000});
    }
    return overlapped;
  };
  std::int32_t most = 0;
  bool own = false;
  const Slowdown seen = [&](std::int32_t rank, std::size_t task, const Concurrent& concurrent) {
    most = std::max(most, concurrent.kernels + concurrent.collectives);
    own = own || concurrent.own_collective;
    return on_two_cores(rank, task, concurrent);
  };
  LanesBeside own_thread = {};
  own_thread[static_cast<std::size_t>(Lane::reduce)] = true;
  EXPECT_NEAR(static_cast<double>(play_contended(step(Lane::reduce), own_thread, seen).makespan_ps), 200'000, 200);
  EXPECT_EQ(most, 4);
  EXPECT_TRUE(own);
  own = false;
  play_contended(step(Lane::tensor), own_thread, seen);
  EXPECT_FALSE(own);
}

TEST(Contended, AMessageIsOnePieceOfTime) {
  Step step{.name = "message"};
  step.of_rank.resize(2);
  step.of_rank[0].tasks = {
      {.op = Op::send_activations, .lane = Lane::send, .stage = 0, .microbatch = 0, .peer = 1, .tag = 0, .amount = 30}};
  step.of_rank[1].tasks = {{.op = Op::recv_activations,
                            .lane = Lane::receive,
                            .stage = 1,
                            .microbatch = 0,
                            .peer = 0,
                            .tag = 0,
                            .amount = 20}};
  EXPECT_EQ(play(with_whole_messages(step)).makespan_ps, 50);
}

}  // namespace
}  // namespace lockstep::simulator
