#include "kernels/residual/residual.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/device_cpu.h"
#include "kernels/base/case_checks.h"
#include "kernels/base/kernel_case.h"
#include "kernels/registry.h"

namespace lockstep::kernels {
namespace {

TEST(Residual, CasesHoldOnTheCpu) {
  on_each_target([](const std::string& target) {
    for (const KernelCase& one : residual_test_cases()) EXPECT_EQ(cpu_errors(one), "") << target;
  });
}

TEST(Residual, AddsInPlaceOfEitherOperandAndCarriesNaNAndInfinity) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> a{1, kInf, kInf, std::nanf("")};
  std::vector<float> b{2, 1, -kInf, 1};
  ThreadPool pool(1);
  ResidualAdd args = shaped(ResidualAdd{.count = 4}, core::DType::f32);
  args.a.data = a.data();
  args.b.data = b.data();
  for (std::vector<float>* y : {&a, &b}) {
    args.y.data = y->data();
    run(args, Context(pool));
    EXPECT_EQ((*y)[1], kInf);
    EXPECT_TRUE(std::isnan((*y)[2]));
    EXPECT_TRUE(std::isnan((*y)[3]));
  }
  EXPECT_EQ(a[0], 3);
  EXPECT_EQ(b[0], 5);
}

}  // namespace
}  // namespace lockstep::kernels
