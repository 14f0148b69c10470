#include "schedules/step/moving.h"

#include <gtest/gtest.h>

#include "schedules/step/breakdown.h"

namespace lockstep::schedules {
namespace {

// Two ranks: a kernel, a collective of both in the reduce lane, a kernel that waits for it.
Step two_ranks() {
  Step step{.name = "two"};
  step.groups.push_back({GroupKind::data, {0, 1}, 2});
  RankStep rank;
  rank.tasks = {{.op = Op::forward, .stage = 0, .microbatch = 0},
                {.op = Op::reduce_grad, .lane = Lane::reduce, .comm = Comm::all_reduce, .stage = 0, .peer = 0},
                {.op = Op::optimizer}};
  rank.after = {0, 1};
  rank.tasks[1].num_after = 1;
  rank.tasks[2].first_after = 1;
  rank.tasks[2].num_after = 1;
  step.of_rank = {rank, rank};
  return step;
}

// The first rank came 6 ps before the second: that time is a wait for a rank. Bytes move in the 4 ps after it.
TEST(WhenBytesMove, ACollectiveBeginsWithItsLastMember) {
  const Step step = two_ranks();
  const StepTimeline ran{{{0, 10}, {10, 20}, {20, 21}}, {{0, 16}, {16, 20}, {20, 21}}};
  const StepTimeline moved = when_bytes_move(step, ran);
  EXPECT_EQ(moved[0][1].start_ps, 16);
  EXPECT_EQ(moved[1][1].start_ps, 16);
  const auto parts = breakdown_of(step, moved);
  EXPECT_EQ(parts[0].exposed_ps[static_cast<std::size_t>(Lane::reduce)], 4);
  EXPECT_EQ(parts[0].bubble_ps, 6);
  EXPECT_EQ(parts[1].exposed_ps[static_cast<std::size_t>(Lane::reduce)], 4);
  EXPECT_EQ(parts[1].bubble_ps, 0);
}

TEST(WhenBytesMove, AReceiveBeginsWithItsSend) {
  Step step{.name = "message"};
  step.of_rank.resize(2);
  step.of_rank[0].tasks = {{.op = Op::send_activations, .lane = Lane::send, .stage = 0, .peer = 1, .tag = 0}};
  step.of_rank[1].tasks = {{.op = Op::recv_activations, .lane = Lane::receive, .stage = 1, .peer = 0, .tag = 0}};
  const StepTimeline moved = when_bytes_move(step, {{{7, 9}}, {{2, 12}}});
  EXPECT_EQ(moved[1][0].start_ps, 7);
  EXPECT_EQ(moved[1][0].end_ps, 12);
  // Clocks that differ a little never turn a span around.
  EXPECT_EQ(when_bytes_move(step, {{{15, 16}}, {{2, 12}}})[1][0].start_ps, 12);
}

}  // namespace
}  // namespace lockstep::schedules
