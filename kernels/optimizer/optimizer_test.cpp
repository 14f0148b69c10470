#include "kernels/optimizer/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

using core::DType;

TEST(Optimizer, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(optimizer_test_cases(), 2000), "");
}

In in(const std::vector<float>& values) {
  return {values.data(), DType::f32, static_cast<std::int64_t>(values.size())};
}
InOut in_out(std::vector<float>& values) {
  return {values.data(), DType::f32, static_cast<std::int64_t>(values.size())};
}

// One parameter, so that everything can be computed by hand.
struct OneParameter {
  std::vector<float> grad{0.5F};
  std::vector<float> clip{1};
  std::vector<float> w{1};
  std::vector<float> m{0};
  std::vector<float> v{0};

  void step(OptimizerStep args) {
    args.count = 1;
    args.grad = in(grad);
    args.clip = in(clip);
    args.master = in_out(w);
    args.m = in_out(m);
    args.v = in_out(v);  // views that a rule has no use for are ignored
    ThreadPool pool(1);
    run(args, Context(pool));
  }
};

TEST(AdamW, TheFirstStepGoesByTheRate) {
  OneParameter parameter;
  parameter.step({.count = 1, .numbers = {.rate = 0.25F, .epsilon = 0}});
  EXPECT_NEAR(parameter.w[0], 0.75, 1e-6);
  EXPECT_NEAR(parameter.m[0], 0.05, 1e-7);
  EXPECT_NEAR(parameter.v[0], 0.00025, 1e-8);
}

TEST(AdamW, ClipAndScaleMultiplyGradientsOnly) {
  OneParameter parameter;
  parameter.clip[0] = 0.5F;
  parameter.step({.count = 1, .numbers = {.rate = 0}, .grad_scale = 0.25F});
  EXPECT_NEAR(parameter.m[0], 0.00625, 1e-8);
  EXPECT_EQ(parameter.w[0], 1);
}

TEST(AdamW, DecayIsNotPartOfTheGradient) {
  OneParameter parameter;
  parameter.grad[0] = 0;
  parameter.step({.count = 1, .numbers = {.rate = 0.5F, .decay = 0.5F}});
  EXPECT_EQ(parameter.w[0], 0.75F);
  EXPECT_EQ(parameter.m[0], 0);
}

TEST(AdamW, AThousandStepsGoWithTheStepsInF64) {
  OneParameter parameter;
  double w = 1;
  double m = 0;
  double v = 0;
  const OptimizerStep args{.count = 1, .numbers = {.decay = 0.01F}};
  for (std::int64_t step = 1; step <= 1000; ++step) {
    parameter.grad[0] = static_cast<float>(std::sin(static_cast<double>(step)));
    OptimizerStep now = args;
    now.step = step;
    parameter.step(now);
    const double g = static_cast<double>(parameter.grad[0]);
    const double b1 = args.numbers.beta1;
    const double b2 = args.numbers.beta2;
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    const double m_hat = m / (1 - std::pow(b1, static_cast<double>(step)));
    const double v_hat = v / (1 - std::pow(b2, static_cast<double>(step)));
    w -= args.numbers.rate * (m_hat / (std::sqrt(v_hat) + args.numbers.epsilon) + args.numbers.decay * w);
  }
  EXPECT_NEAR(parameter.w[0], w, 1000 * 0x1p-24);
}

TEST(AdamW, BadGradientsShow) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    OneParameter parameter;
    parameter.grad[0] = bad;
    parameter.step({.count = 1});
    EXPECT_TRUE(std::isnan(parameter.w[0])) << bad;
  }
}

// The clip of a norm that is not finite (ClipFactor): the gradients are irrelevant.
TEST(AdamW, AClipThatIsNoPositiveNumberChangesNothing) {
  for (float clip : {0.0F, -1.0F, NAN}) {
    OneParameter parameter;
    parameter.clip[0] = clip;
    parameter.grad[0] = NAN;
    parameter.step({.count = 1, .numbers = {.decay = 0.5F}});
    EXPECT_EQ(parameter.w[0], 1);
    EXPECT_EQ(parameter.m[0], 0);
    EXPECT_EQ(parameter.v[0], 0);
  }
}

TEST(AdamW, AScheduleIsReadInPlaceOfRateAndStep) {
  OneParameter by_numbers;
  OneParameter by_schedule;
  for (std::int64_t step = 1; step <= 5; ++step) {
    OptimizerStep args{
        .count = 1, .numbers = {.rate = 0.0625F / static_cast<float>(step), .decay = 0.1F}, .step = step};
    by_numbers.step(args);
    const auto schedule = optimizer_schedule(args.kind, args.numbers, step);
    args.scheduled = true;
    args.schedule = {schedule.data(), DType::f32, kOptimizerSchedule};
    args.numbers.rate = 1e6F;
    args.step = 12345;
    by_schedule.step(args);
    EXPECT_NEAR(by_schedule.w[0], by_numbers.w[0], 1e-6) << step;
  }
}

// f32 gradients with narrow weights: the dtypes of gradients and weights are independent.
TEST(AdamW, NarrowWeightsAreTheRoundedMaster) {
  constexpr std::int64_t kCount = 37;
  std::vector<float> grad(kCount, 0.25F);
  std::vector<float> w(kCount);
  std::vector<float> momentum(kCount, 0.0F);
  std::vector<float> clip{1};
  std::vector<core::BFloat16> narrow(kCount);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = 1 + static_cast<float>(i) / 1000;
  ThreadPool pool(1);
  OptimizerStep args{.count = kCount, .kind = OptimizerKind::momentum, .narrow_weights = true};
  args.grad = in(grad);
  args.clip = in(clip);
  args.master = in_out(w);
  args.m = in_out(momentum);
  args.weights = {narrow.data(), DType::bf16, kCount};
  run(args, Context(pool));
  for (std::size_t i = 0; i < w.size(); ++i) EXPECT_EQ(narrow[i].bits, core::to_bfloat16(w[i]).bits) << i;
}

double sum_of_squares(const std::vector<float>& x, int num_threads) {
  double sum = 0;
  run_on_cpu(SumOfSquares{.count = static_cast<std::int64_t>(x.size())}, {x.data(), &sum}, num_threads);
  return sum;
}

TEST(SumOfSquares, ALargeSumIsExactBetweenPieces) {
  const std::vector<float> ones(3000017, 1.0F);  // f32 alone would lose ones past 2^24 only in larger sums of 4
  EXPECT_EQ(sum_of_squares(ones, 1), 3000017);
  const std::vector<float> fours(20000003, 2.0F);
  EXPECT_EQ(sum_of_squares(fours, 2), 80000012);
}

TEST(SumOfSquares, WhatIsNotFiniteShows) {
  std::vector<float> x(50000, 1.0F);
  x[40001] = -INFINITY;
  EXPECT_EQ(sum_of_squares(x, 2), INFINITY);
  x[7] = NAN;
  EXPECT_TRUE(std::isnan(sum_of_squares(x, 2)));
  x.assign(3, 1e30F);
  EXPECT_EQ(sum_of_squares(x, 1), INFINITY) << "overflow of f32";
}

struct Clipped {
  float factor;
  float norm;
};
Clipped clipped(const std::vector<double>& sums, float most) {
  Clipped result{};
  run_on_cpu(ClipFactor{.shards = static_cast<std::int64_t>(sums.size()), .most = most},
             {sums.data(), &result.factor, &result.norm});
  return result;
}

TEST(ClipFactor, ClipsAboveOnly) {
  EXPECT_EQ(clipped({9, 16}, 10).factor, 1);
  EXPECT_EQ(clipped({9, 16}, 10).norm, 5);
  EXPECT_NEAR(clipped({9, 16}, 1).factor, 0.2, 1e-6);
  EXPECT_EQ(clipped({0}, 1).factor, 1);
}

TEST(ClipFactor, OfWhatIsNotFinite) {
  EXPECT_EQ(clipped({1, INFINITY}, 1).factor, 0);
  EXPECT_EQ(clipped({1, INFINITY}, 1).norm, INFINITY);
  EXPECT_TRUE(std::isnan(clipped({NAN, 1}, 1).factor));
  EXPECT_TRUE(std::isnan(clipped({NAN, 1}, 1).norm));
}

TEST(Optimizer, RefusesNumbersOutOfRange) {
  EXPECT_EQ(refusal(OptimizerStep{.count = 0}), "adamw: count is 0; allowed: at least 1");
  EXPECT_EQ(refusal(OptimizerStep{.count = 1, .step = 0}), "adamw: step is 0; allowed: at least 1");
  EXPECT_EQ(refusal(OptimizerStep{.count = 1, .numbers = {.beta1 = 1}}),
            "adamw: beta1 is 1; allowed: at least 0 and below 1");
  EXPECT_EQ(refusal(OptimizerStep{.count = 1, .numbers = {.beta2 = -0.5F}}),
            "adamw: beta2 is -0.5; allowed: at least 0 and below 1");
  EXPECT_EQ(refusal(OptimizerStep{.count = 1, .numbers = {.beta2 = NAN}}),
            "adamw: beta2 is nan; allowed: at least 0 and below 1");
  EXPECT_EQ(refusal(OptimizerStep{.count = 1, .numbers = {.rate = -1}}),
            "adamw: rate is -1; allowed: finite numbers, at least 0");
  EXPECT_EQ(refusal(OptimizerStep{.count = 1, .numbers = {.epsilon = -1}}),
            "adamw: epsilon is -1; allowed: finite numbers, at least 0");
  EXPECT_EQ(refusal(OptimizerStep{.count = 1, .numbers = {.decay = INFINITY}}),
            "adamw: decay is inf; allowed: finite numbers, at least 0");
  EXPECT_EQ(refusal(OptimizerStep{.count = 1, .grad_scale = NAN}), "adamw: grad_scale is nan; allowed: finite numbers");
  EXPECT_EQ(refusal(OptimizerStep{.count = 1, .kind = OptimizerKind::momentum, .numbers = {.beta1 = 1}}),
            "momentum: beta1 is 1; allowed: at least 0 and below 1");
  EXPECT_EQ(refusal(ClipFactor{.shards = 0, .most = 1}), "clip_factor: shards is 0; allowed: at least 1");
  EXPECT_EQ(refusal(ClipFactor{.shards = 1, .most = 0}), "clip_factor: most is 0; allowed: finite numbers above 0");
  EXPECT_EQ(refusal(SumOfSquares{.count = -1}), "sum_of_squares: count is -1; allowed: at least 1");
}

TEST(Optimizer, RefusesOtherDTypes) {
  std::vector<float> x(8);
  double sum = 0;
  const SumOfSquares args{.count = 2, .x = {x.data(), DType::f64, 2}, .sum = {&sum, DType::f64, 1}};
  EXPECT_EQ(refusal(args), "sum_of_squares: x is double; allowed: half, float, bfloat16");
}

}  // namespace
}  // namespace lockstep::kernels
