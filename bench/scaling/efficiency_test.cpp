#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "bench/scaling/scaling.h"

namespace lockstep::scaling {
namespace {

StepSample sample(double forward, double reduce, double bubble, double around) {
  return {forward + reduce + bubble + around,
          {{"forward", forward}, {"exposed_reduce", reduce}, {"bubble", bubble}, {"around", around}}};
}

// Rounds whose steps are all longer or shorter by a factor of up to 1 +- `noise`, in a fixed order.
std::vector<StepSample> rounds(const StepSample& step, std::size_t count, double noise, std::size_t offset = 0) {
  std::vector<StepSample> all;
  for (std::size_t i = 0; i < count; ++i) {
    const double factor = 1 + noise * std::sin(1.7 * static_cast<double>(i + offset));
    StepSample single{step.ms * factor, step.parts_ms};
    for (auto& part : single.parts_ms) part.second *= factor;
    all.push_back(std::move(single));
  }
  return all;
}

double sum_of(const Efficiency& efficiency) {
  return std::accumulate(efficiency.losses.begin(), efficiency.losses.end(), efficiency.value,
                         [](double sum, const Loss& loss) { return sum + loss.share; });
}

const Loss& loss_to(const Efficiency& efficiency, std::string_view to) {
  return *std::find_if(efficiency.losses.begin(), efficiency.losses.end(),
                       [&](const Loss& loss) { return loss.to == to; });
}

const StepSample kOne = sample(90, 0, 0, 10);

// Weak scaling on 2 ranks: kernels 110 for 90, 15 of communication, 5 of waiting.
TEST(Efficiency, AndLossesOfQuietRoundsAddUpToOne) {
  const auto one = rounds(kOne, 10, 0.02);
  const auto two = rounds(sample(110, 15, 5, 10), 10, 0.02);
  const Efficiency efficiency = efficiency_of(one, two, {.work = 2, .speedup = 2});
  EXPECT_EQ(efficiency.verdict, "loss");
  EXPECT_NEAR(efficiency.value, 100.0 / 140, 1e-9);
  EXPECT_NEAR(loss_to(efficiency, "compute").share, 20.0 / 140, 1e-9);
  EXPECT_NEAR(loss_to(efficiency, "communication").share, 15.0 / 140, 1e-9);
  EXPECT_NEAR(loss_to(efficiency, "bubble").share, 5.0 / 140, 1e-9);
  EXPECT_NEAR(loss_to(efficiency, "other").share, 0, 1e-9);
  EXPECT_NEAR(sum_of(efficiency), 1, 1e-12);
  EXPECT_TRUE(is_decided(loss_to(efficiency, "compute")));
}

TEST(Efficiency, StrongScalingSharesOutOneRanksStep) {
  const Efficiency efficiency = efficiency_of(rounds(kOne, 10, 0), rounds(sample(45, 5, 0, 10), 10, 0),
                                              {.work = 1, .speedup = 2, .can_exceed = true});
  EXPECT_NEAR(efficiency.value, 50.0 / 60, 1e-12);
  EXPECT_NEAR(loss_to(efficiency, "other").share, 5.0 / 60, 1e-12) << "10 in place of 5";
  EXPECT_NEAR(sum_of(efficiency), 1, 1e-12);
}

TEST(Efficiency, NoisyRoundsAddUpAndAPlantedLossIsFound) {
  const auto one = rounds(kOne, 12, 0.15);
  const auto two = rounds(sample(135, 15, 0, 0), 12, 0.15, 5);
  const Efficiency efficiency = efficiency_of(one, two, {.work = 2, .speedup = 2});
  EXPECT_EQ(efficiency.verdict, "loss");
  EXPECT_LT(efficiency.interval->low, 1 / 1.5);
  EXPECT_GT(efficiency.interval->high, 1 / 1.5);
  EXPECT_NEAR(sum_of(efficiency), 1, 1e-12);
}

// One rank's steps were disturbed: 149 % is no finding where each rank does the same work as one.
TEST(Efficiency, WhatIsNotPossibleIsUndecided) {
  const auto slow = rounds(sample(140, 0, 0, 9), 10, 0.02);
  const auto two = rounds(kOne, 10, 0.02);
  const Efficiency weak = efficiency_of(slow, two, {.work = 2, .speedup = 2});
  EXPECT_NEAR(weak.value, 1.49, 0.01);
  EXPECT_EQ(weak.verdict, "undecided");
  EXPECT_NE(weak.undecided->find("not possible"), std::string::npos) << *weak.undecided;
  const Efficiency strong = efficiency_of(slow, two, {.work = 2, .speedup = 2, .can_exceed = true});
  EXPECT_EQ(strong.verdict, "superlinear");
  EXPECT_FALSE(strong.undecided);
}

TEST(Efficiency, AWideIntervalOrFewRoundsDoNotDecide) {
  const Efficiency wide = efficiency_of(rounds(kOne, 9, 0.3), rounds(kOne, 9, 0.3, 4), {.work = 2, .speedup = 2});
  EXPECT_EQ(wide.verdict, "undecided");
  EXPECT_NE(wide.undecided->find("spread"), std::string::npos) << *wide.undecided;
  const Efficiency few =
      efficiency_of(rounds(kOne, 5, 0), rounds(sample(180, 0, 0, 10), 5, 0), {.work = 2, .speedup = 2});
  EXPECT_EQ(few.verdict, "undecided");
  EXPECT_EQ(few.undecided->rfind("5 of at least 6", 0), 0U) << *few.undecided;
  const Efficiency narrow = efficiency_of(rounds(kOne, 10, 0.01), rounds(kOne, 10, 0.01, 3), {.work = 2, .speedup = 2});
  EXPECT_EQ(narrow.verdict, "no loss");
}

TEST(Efficiency, NothingIsDecidedWhereOtherProgramsRun) {
  const auto one = rounds(kOne, 10, 0);
  const auto two = rounds(sample(150, 0, 0, 10), 10, 0);
  EXPECT_EQ(efficiency_of(one, two, {.work = 2, .speedup = 2, .others = 0.02}).verdict, "loss");
  const Efficiency disturbed = efficiency_of(one, two, {.work = 2, .speedup = 2, .others = 0.4});
  EXPECT_EQ(disturbed.verdict, "undecided");
  EXPECT_EQ(disturbed.undecided->rfind("other programs used 40 %", 0), 0U) << *disturbed.undecided;
}

TEST(Efficiency, ASimulatedStepIsOneSample) {
  const Efficiency far = efficiency_of(rounds(kOne, 1, 0), rounds(sample(90, 25, 0, 10), 1, 0),
                                       {.work = 1024, .speedup = 1024, .simulated = true});
  EXPECT_EQ(far.verdict, "loss");
  EXPECT_NEAR(loss_to(far, "communication").share, 0.2, 1e-12);
  EXPECT_EQ(efficiency_of(rounds(kOne, 1, 0), rounds(sample(80, 0, 0, 10), 1, 0),
                          {.work = 8, .speedup = 8, .simulated = true})
                .verdict,
            "undecided")
      << "above 100 %";
}

// Four ranks on two cores: the ideal is twice one rank's rate, and a rank's waits are another's kernels.
TEST(Efficiency, RanksThatShareCoresAreRelativeToTheCores) {
  const Efficiency efficiency = efficiency_of(rounds(kOne, 10, 0), rounds(sample(200, 20, 20, 10), 10, 0),
                                              {.work = 4, .speedup = 2, .shares_cores = true});
  EXPECT_NEAR(efficiency.value, 200.0 / 250, 1e-12);
  ASSERT_EQ(efficiency.losses.size(), 1U);
  EXPECT_EQ(efficiency.losses.front().to, "cores");
  EXPECT_NEAR(sum_of(efficiency), 1, 1e-12);
}

}  // namespace
}  // namespace lockstep::scaling
