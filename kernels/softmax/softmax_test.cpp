#include "kernels/softmax/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/device.h"
#include "kernels/base/kernel_case.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Computes the softmax of one row.
std::vector<float> softmax_of(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  run_on_cpu(SoftmaxForward{.rows = 1, .columns = static_cast<std::int64_t>(x.size())}, {x.data(), y.data()});
  return y;
}

TEST(Softmax, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(softmax_test_cases()), "");
}

TEST(Softmax, TheBackwardIsTheDerivative) {
  const CaseFacts facts{.shape = "R3_C17", .dtype = core::DType::f64};
  EXPECT_EQ(gradient_errors({.forward = make_case(SoftmaxForward{.rows = 3, .columns = 17}, facts),
                             .backward = make_case(SoftmaxBackward{.rows = 3, .columns = 17}, facts),
                             .outputs = {{"y", "dy"}},
                             .inputs = {{"x", "dx"}}}),
            "");
}

TEST(Softmax, MinusInfinityGivesZeroAndTheRestSumsToOne) {
  on_each_target([](const std::string& target) {
    for (const std::size_t columns : {2U, 17U, 40U, 3000U}) {
      std::vector<float> x(columns, 1.0F);
      x[0] = -kInf;
      x[columns / 2] = std::numeric_limits<float>::lowest();
      double sum = 0;
      const std::vector<float> y = softmax_of(x);
      for (float share : y) sum += static_cast<double>(share);
      EXPECT_EQ(y[0], 0) << target;
      EXPECT_EQ(y[columns / 2], columns == 2 ? 1 : 0) << target;
      EXPECT_NEAR(sum, 1, 1e-5) << target;
    }
  });
}

TEST(Softmax, LargeLogitsDoNotOverflow) {
  on_each_target([](const std::string& target) {
    const std::vector<float> y = softmax_of({3e38F, -3e38F, 3e38F});
    EXPECT_EQ(y, (std::vector<float>{0.5F, 0.0F, 0.5F})) << target;
  });
}

TEST(Softmax, NaNAndARowWithoutAFiniteMaximumBecomeNaN) {
  on_each_target([](const std::string& target) {
    for (const std::size_t columns : {1U, 17U, 40U}) {
      for (std::size_t at = 0; at < columns; at += 7) {
        std::vector<float> x(columns, 1.0F);
        x[at] = kNaN;
        for (float y : softmax_of(x)) EXPECT_TRUE(std::isnan(y)) << target;
        x[at] = kInf;
        for (float y : softmax_of(x)) {
          EXPECT_TRUE(std::isnan(y) || y == 0) << target;
        }
      }
      for (float y : softmax_of(std::vector<float>(columns, -kInf))) EXPECT_TRUE(std::isnan(y)) << target;
    }
  });
}

}  // namespace
}  // namespace lockstep::kernels
