// Ranks numbered in another order do the same work: another rank has each place, and every loss has the same bits.
#include <gtest/gtest.h>

#include "trainer/train/run_for_tests.h"

namespace lockstep::trainer {
namespace {

using workload::Axis;

TEST(Order, OfRanksChangesNoLoss) {
  workload::Layout layout = all_of_them();
  const TrainResult usual = run(layout);
  for (const workload::AxisOrder order :
       {workload::AxisOrder{Axis::pp, Axis::dp, Axis::cp, Axis::tp}, {Axis::dp, Axis::tp, Axis::pp, Axis::cp}}) {
    layout.order = order;
    EXPECT_EQ(difference(usual, run(layout), 0), "") << text_of(layout);
    EXPECT_EQ(memory_difference(options_of(layout)), "") << text_of(layout);
  }
}

}  // namespace
}  // namespace lockstep::trainer
