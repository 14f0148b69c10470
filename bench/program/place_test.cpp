#include "bench/program/place.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace lockstep::program {
namespace {

StepEnergy energy_of(std::optional<double>& joules) {
  return StepEnergy({[&joules] { return joules; }, "nvml", 2});
}

TEST(StepEnergy, CountsStepsWithoutTheFirstAndWithoutWhatComesBetween) {
  std::optional<double> joules = 0;
  StepEnergy energy = energy_of(joules);
  for (const double more : {1000.0, 10.0, 30.0}) {
    joules = *joules + more;
    energy.end_step();
    joules = *joules + 500;  // validation
    energy.end_pause();
  }
  const auto record = energy.record(/*tokens_per_step=*/4096);
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->source, "nvml");
  EXPECT_EQ(record->devices, 2);
  EXPECT_EQ(record->steps, 2);
  EXPECT_DOUBLE_EQ(record->joules_per_step, 20);
  EXPECT_DOUBLE_EQ(record->tokens_per_joule, 4096 / 20.0);
  EXPECT_DOUBLE_EQ(record->watts * record->seconds, 40);
  EXPECT_NE(energy.text(4096).find("20 J per step"), std::string::npos) << energy.text(4096);
  EXPECT_NE(energy.text(4096).find("2 GPUs by NVML, 2 steps"), std::string::npos) << energy.text(4096);
}

TEST(StepEnergy, StepsThatAreBegunCountFromThereTheFirstToo) {
  std::optional<double> joules = 0;
  StepEnergy energy = energy_of(joules);
  for (int step = 0; step < 3; ++step) {
    joules = *joules + 500;
    energy.begin_step();
    joules = *joules + 7;
    energy.end_step();
  }
  EXPECT_EQ(energy.record(1).value().steps, 3);
  EXPECT_DOUBLE_EQ(energy.record(1).value().joules_per_step, 7);
}

TEST(StepEnergy, OneStepOrACounterThatStoodStillIsNoRecordAndNoZero) {
  std::optional<double> joules = 0;
  StepEnergy energy = energy_of(joules);
  energy.end_step();
  EXPECT_FALSE(energy.record(1).has_value());
  energy.end_step();
  EXPECT_FALSE(energy.record(1).has_value());
  EXPECT_EQ(energy.text(1), "# no energy: the run was too short to count\n");
}

TEST(StepEnergy, ACounterThatFailsOnTheWayLeavesNone) {
  std::optional<double> joules = 1;
  StepEnergy energy = energy_of(joules);
  energy.end_step();
  joules = 2;
  energy.end_step();
  joules.reset();
  energy.end_step();
  EXPECT_FALSE(energy.record(1).has_value());
  EXPECT_NE(energy.text(1).find("could not be read"), std::string::npos);
}

TEST(StepEnergy, WithoutAMeterTheReasonIsTold) {
  StepEnergy energy({.why_absent = "no energy: why not"});
  energy.end_step();
  EXPECT_FALSE(energy.record(1).has_value());
  EXPECT_EQ(energy.text(1), "# no energy: why not\n");
}

}  // namespace
}  // namespace lockstep::program
