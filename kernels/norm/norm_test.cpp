#include "kernels/norm/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "kernels/base/kernel_case.h"
#include "kernels/norm/norm_reference.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

struct LayerNormed {
  std::vector<float> y;
  float mean = 0;
  float rstd = 0;
};

// Normalises one row with gamma = 1 and beta = 0.
LayerNormed layer_norm_of(const std::vector<float>& x) {
  const std::vector<float> gamma(x.size(), 1.0F);
  const std::vector<float> beta(x.size(), 0.0F);
  LayerNormed result;
  result.y.resize(x.size());
  run_on_cpu(NormForward{Norm::layer, 1, static_cast<std::int64_t>(x.size())},
             {x.data(), gamma.data(), beta.data(), result.y.data(), &result.mean, &result.rstd});
  return result;
}

TEST(Norm, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(norm_test_cases()), "");
}

// Blocks of rows do not depend on the number of threads: 1000 rows are 16 blocks, of which the last is short.
TEST(Norm, ParameterGradientsHaveTheSameBitsOnAnyNumberOfThreads) {
  const auto device = core::make_cpu_device();
  std::vector<std::unique_ptr<ThreadPool>> pools;
  std::vector<Context> contexts;
  for (int threads : {1, 2, 3, 5}) pools.push_back(std::make_unique<ThreadPool>(threads));
  for (const auto& pool : pools) contexts.emplace_back(*pool);
  std::vector<CaseRunner> runners;
  for (const Context& context : contexts) runners.push_back({*device, context});
  for (core::DType dtype : kActivationDTypes) {
    const CaseFacts facts{.shape = "R1000_C97", .dtype = dtype};
    for (Norm norm : {Norm::layer, Norm::rms}) {
      EXPECT_EQ(determinism_errors(make_case(NormBackward{norm, 1000, 97}, facts), 1, runners), "");
    }
  }
}

TEST(Norm, TheBackwardIsTheDerivative) {
  const CaseFacts facts{.shape = "R3_C17", .dtype = core::DType::f64};
  for (Norm norm : {Norm::layer, Norm::rms}) {
    std::vector<GradientCheck::Names> inputs{{"x", "dx"}, {"gamma", "dgamma"}};
    if (norm == Norm::layer) inputs.push_back({"beta", "dbeta"});
    EXPECT_EQ(gradient_errors({.forward = make_case(NormForward{norm, 3, 17}, facts),
                               .backward = make_case(NormBackward{norm, 3, 17}, facts),
                               .outputs = {{"y", "dy"}},
                               .inputs = inputs}),
              "");
    inputs.push_back({"residual", "dx"});
    EXPECT_EQ(gradient_errors({.forward = make_case(NormForward{norm, 3, 17, true}, facts),
                               .backward = make_case(NormBackward{norm, 3, 17, true}, facts),
                               .outputs = {{"y", "dy"}, {"sum", "dsum"}},
                               .inputs = inputs,
                               .same = {{"sum", "x"}}}),
              "");
  }
}

// If the mean is 10^4 standard deviations, a difference of sums of squares in f32 has no digit left.
TEST(Norm, ALargeMeanLeavesTheVarianceItsDigits) {
  on_each_target([](const std::string& target) {
    std::vector<float> x;
    for (int i = 0; i < 768; ++i) x.push_back(10000.0F + (i % 2 == 0 ? 1.0F : -1.0F));
    const LayerNormed result = layer_norm_of(x);
    EXPECT_NEAR(result.mean, 10000, 0.01) << target;
    EXPECT_NEAR(result.rstd, 1, 1e-4) << target;
  });
}

TEST(Norm, AConstantRowGivesZero) {
  on_each_target([](const std::string& target) {
    const LayerNormed result = layer_norm_of(std::vector<float>(64, 3.0F));
    EXPECT_EQ(result.mean, 3) << target;
    EXPECT_NEAR(result.rstd, 1 / std::sqrt(1e-5), 0.01) << target;
    for (float y : result.y) EXPECT_NEAR(y, 0, 1e-4) << target;
  });
}

TEST(Norm, ARowWithNaNOrInfinityBecomesNaNAlone) {
  on_each_target([](const std::string& target) {
    for (float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      std::vector<float> x(37, 1.0F);
      x[36] = bad;
      const LayerNormed result = layer_norm_of(x);
      EXPECT_TRUE(std::isnan(result.rstd)) << target;
      for (float y : result.y) EXPECT_TRUE(std::isnan(y)) << target;
    }
  });
}

}  // namespace
}  // namespace lockstep::kernels
