#include "kernels/swiglu/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/device_cpu.h"
#include "kernels/base/case_checks.h"
#include "kernels/registry.h"

namespace lockstep::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> swiglu_of(float gate, float up, std::size_t columns) {
  std::vector<float> x(columns, gate);
  x.resize(2 * columns, up);
  std::vector<float> y(columns);
  ThreadPool pool(1);
  SwigluForward args =
      shaped(SwigluForward{.rows = 1, .columns = static_cast<std::int64_t>(columns)}, core::DType::f32);
  args.x.data = x.data();
  args.y.data = y.data();
  run(args, Context(pool));
  return y;
}

SwigluBackward backward_of(std::vector<float>& x, std::vector<float>& dy, std::vector<float>& dx) {
  SwigluBackward args =
      shaped(SwigluBackward{.rows = 1, .columns = static_cast<std::int64_t>(dy.size())}, core::DType::f32);
  args.x.data = x.data();
  args.dy.data = dy.data();
  args.dx.data = dx.data();
  return args;
}

TEST(Swiglu, CasesHoldOnTheCpu) {
  on_each_target([](const std::string& target) {
    for (const KernelCase& one : swiglu_test_cases()) EXPECT_EQ(cpu_errors(one), "") << target;
  });
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
      ThreadPool pool(1);
      run(backward_of(x, dy, dx), Context(pool));
      EXPECT_EQ(dx.front(), 6) << target << ": the slope is 1 at infinity";
      EXPECT_EQ(dx.back(), kInf) << target;
      std::fill_n(x.begin(), columns, -kInf);
      run(backward_of(x, dy, dx), Context(pool));
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
  ThreadPool pool(2);
  run(backward_of(x, dy, dx), Context(pool));
  run(backward_of(x, dy, x), Context(pool));
  EXPECT_EQ(x, dx);
}

}  // namespace
}  // namespace lockstep::kernels
