#include "kernels/activation/activation.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/error.h"
#include "kernels/base/kernel_case.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::int64_t count_of(const std::vector<float>& x) {
  return static_cast<std::int64_t>(x.size());
}

std::vector<float> gelu_of(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  run_on_cpu(GeluForward{.count = count_of(x)}, {x.data(), y.data()});
  return y;
}

// Returns the derivative: the backward with dy = 1.
std::vector<float> slope_of(const std::vector<float>& x) {
  const std::vector<float> dy(x.size(), 1.0F);
  std::vector<float> dx(x.size());
  run_on_cpu(GeluBackward{.count = count_of(x)}, {x.data(), dy.data(), dx.data()});
  return dx;
}

TEST(Activation, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(activation_test_cases()), "");
}

TEST(Gelu, TheBackwardIsTheDerivative) {
  const CaseFacts facts{.shape = "N1031", .dtype = core::DType::f64};
  EXPECT_EQ(gradient_errors({.forward = make_case(GeluForward{.count = 1031}, facts),
                             .backward = make_case(GeluBackward{.count = 1031}, facts),
                             .outputs = {{"y", "dy"}},
                             .inputs = {{"x", "dx"}}}),
            "");
}

TEST(Gelu, SpecialValuesAreAsStated) {
  on_each_target([](const std::string& target) {
    for (const std::size_t count : {1U, 5U, 40U}) {
      for (float y : gelu_of(std::vector<float>(count, kNaN))) EXPECT_TRUE(std::isnan(y)) << target;
      for (float y : gelu_of(std::vector<float>(count, kInf))) EXPECT_EQ(y, kInf) << target;
      for (float y : gelu_of(std::vector<float>(count, -kInf))) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(y), std::bit_cast<std::uint32_t>(-0.0F)) << target;
      }
      for (float dx : slope_of(std::vector<float>(count, kNaN))) EXPECT_TRUE(std::isnan(dx)) << target;
      for (float dx : slope_of(std::vector<float>(count, kInf))) EXPECT_EQ(dx, 1) << target;
      for (float dx : slope_of(std::vector<float>(count, -kInf))) EXPECT_EQ(dx, 0) << target;
    }
  });
}

// Here the tanh form cancels: y = x/2 (1 + tanh u), and tanh u is near -1. Even in f64 the tanh form loses digits, so
// the reference is the form with e^v.
TEST(Gelu, FarTailsKeepTheirDigits) {
  on_each_target([](const std::string& target) {
    for (float x = -9.0F; x < 9.0F; x += 0.0137F) {
      const double v = 2 * kGeluScale * x * (1 + kGeluCubic * x * x);
      const double wanted = x / (1 + std::exp(-v));
      const double most = 1e-6 * (1 + std::fabs(v)) * std::fabs(wanted);
      EXPECT_NEAR(gelu_of({x})[0], wanted, most) << target << " " << x;
    }
  });
}

TEST(Gelu, ResultsInPlaceAreTheSame) {
  std::vector<float> x;
  for (int i = 0; i < 1031; ++i) x.push_back(0.01F * static_cast<float>(i - 500));
  const std::vector<float> y = gelu_of(x);
  run_on_cpu(GeluForward{.count = 1031}, {x.data(), x.data()}, 2);
  EXPECT_EQ(x, y);
}

TEST(Gelu, WrongArgumentsAreNamed) {
  std::vector<float> x(8);
  EXPECT_THROW(run_on_cpu(GeluForward{.count = 4}, {x.data(), x.data() + 2}), core::Error);
  EXPECT_THROW(run_on_cpu(GeluForward{.count = 0}, {x.data(), x.data() + 4}), core::Error);
}

std::vector<float> swiglu_of(float gate, float up, std::size_t columns) {
  std::vector<float> x(columns, gate);
  x.resize(2 * columns, up);
  std::vector<float> y(columns);
  run_on_cpu(SwigluForward{.rows = 1, .columns = count_of(y)}, {x.data(), y.data()});
  return y;
}

void swiglu_backward(std::vector<float>& x, std::vector<float>& dy, std::vector<float>& dx, int threads) {
  run_on_cpu(SwigluBackward{.rows = 1, .columns = count_of(dy)}, {x.data(), dy.data(), dx.data()}, threads);
}

TEST(Swiglu, TheBackwardIsTheDerivative) {
  const CaseFacts facts{.shape = "N3_C37", .dtype = core::DType::f64};
  EXPECT_EQ(gradient_errors({.forward = make_case(SwigluForward{.rows = 3, .columns = 37}, facts),
                             .backward = make_case(SwigluBackward{.rows = 3, .columns = 37}, facts),
                             .outputs = {{"y", "dy"}},
                             .inputs = {{"x", "dx"}}}),
            "");
}

TEST(Swiglu, SpecialValuesAreAsStated) {
  on_each_target([](const std::string& target) {
    for (const std::size_t columns : {1U, 5U, 40U}) {
      for (float y : swiglu_of(kNaN, 1, columns)) EXPECT_TRUE(std::isnan(y)) << target;
      for (float y : swiglu_of(1, kNaN, columns)) EXPECT_TRUE(std::isnan(y)) << target;
      for (float y : swiglu_of(kInf, -2, columns)) EXPECT_EQ(y, -kInf) << target;
      for (float y : swiglu_of(-kInf, 2, columns)) EXPECT_EQ(y, 0) << target;
      std::vector<float> x(columns, kInf);
      x.resize(2 * columns, 3.0F);
      std::vector<float> dy(columns, 2.0F);
      std::vector<float> dx(2 * columns);
      swiglu_backward(x, dy, dx, 1);
      EXPECT_EQ(dx.front(), 6) << target << ": the slope is 1 at infinity";
      EXPECT_EQ(dx.back(), kInf) << target;
      std::fill_n(x.begin(), columns, -kInf);
      swiglu_backward(x, dy, dx, 1);
      EXPECT_EQ(dx.front(), 0) << target;
    }
  });
}

TEST(Swiglu, GradientsInPlaceAreTheSame) {
  std::vector<float> x;
  std::vector<float> dy;
  for (int i = 0; i < 2 * 517; ++i) x.push_back(0.01F * static_cast<float>(i - 500));
  for (int i = 0; i < 517; ++i) dy.push_back(0.02F * static_cast<float>(i - 200));
  std::vector<float> dx(x.size());
  swiglu_backward(x, dy, dx, 2);
  swiglu_backward(x, dy, x, 2);
  EXPECT_EQ(x, dx);
}

}  // namespace
}  // namespace lockstep::kernels
