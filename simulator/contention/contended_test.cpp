#include "simulator/contention/contended.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::simulator {
namespace {

using schedules::Lane;
using schedules::Op;
using schedules::Step;
using schedules::Task;

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
TEST(Contended, CollectivesBesideKernelsTakeCores) {
  const auto step = [](Lane lane) {
    Step made = kernels({100'000, 100'000});
    made.groups.push_back({schedules::GroupKind::data, {0, 1}});
    for (schedules::RankStep& rank : made.of_rank) {
      rank.tasks.push_back(
          {.op = Op::reduce_grad, .lane = lane, .comm = schedules::Comm::all_reduce, .peer = 0, .amount = 100'000});
    }
    return made;
  };
  std::int32_t most = 0;
  bool own = false;
  const Slowdown seen = [&](std::int32_t rank, std::size_t task, const Concurrent& concurrent) {
    most = std::max(most, concurrent.kernels + concurrent.collectives);
    own = own || concurrent.own_collective;
    return on_two_cores(rank, task, concurrent);
  };
  LanesBeside beside = {};
  beside[static_cast<std::size_t>(Lane::reduce)] = true;
  EXPECT_NEAR(static_cast<double>(play_contended(step(Lane::reduce), beside, seen).makespan_ps), 200'000, 200);
  EXPECT_EQ(most, 4);
  EXPECT_TRUE(own);
  own = false;
  play_contended(step(Lane::tensor), beside, seen);
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
