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

// One of two ranks that have half of each row's columns, or the only one.
struct NormRank {
  static constexpr std::int64_t kRows = 7;
  static constexpr std::int64_t kColumns = 38;
  std::int64_t first = 0;
  std::int64_t columns = kColumns;
  std::vector<float> x, residual, sum, gamma, beta, y, dy, dsum, dx, dgamma, dbeta;
  std::vector<float> mean = std::vector<float>(kRows), rstd = mean, sums = std::vector<float>(2 * kRows);

  NormRank(std::int64_t begin, std::int64_t count) : first(begin), columns(count) {
    const auto values = [&](std::int64_t rows, double seed) {
      std::vector<float> made;
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = first; c < first + columns; ++c) {
          made.push_back(static_cast<float>(std::sin(seed * static_cast<double>(r * kColumns + c + 1)) + 0.3));
        }
      }
      return made;
    };
    x = values(kRows, 1.1);
    residual = values(kRows, 2.3);
    dy = values(kRows, 3.7);
    dsum = values(kRows, 4.9);
    gamma = values(1, 5.3);
    beta = values(1, 6.1);
    for (std::vector<float>* const made : {&sum, &y, &dx}) made->resize(x.size());
    dgamma = dbeta = std::vector<float>(gamma.size(), 0.5F);
  }
  template <class View>
  static View view(std::vector<float>& of) {
    return {of.data(), core::DType::f32, static_cast<std::int64_t>(of.size())};
  }

  void forward(Norm norm, NormPart part) {
    NormForward args{.norm = norm, .rows = kRows, .columns = columns, .with_residual = true, .part = part};
    args.ranks = kColumns / columns;
    args.x = view<In>(part == NormPart::rest ? sum : x);
    args.residual = view<In>(residual);
    args.gamma = view<In>(gamma);
    args.beta = view<In>(beta);
    args.sum = view<Out>(sum);
    args.y = view<Out>(y);
    args.mean = view<Out>(mean);
    args.rstd = view<Out>(rstd);
    args.sums = {sums.data(), core::DType::f32, kRows * sums_per_row(norm)};
    ThreadPool pool(2);
    run(args, Context(pool));
  }
  void backward(Norm norm, NormPart part) {
    NormBackward args{.norm = norm, .rows = kRows, .columns = columns, .with_residual = true, .part = part};
    args.ranks = kColumns / columns;
    args.dy = view<In>(dy);
    args.dsum = view<In>(dsum);
    args.x = view<In>(sum);
    args.gamma = view<In>(gamma);
    args.mean = view<In>(mean);
    args.rstd = view<In>(rstd);
    args.dx = view<Out>(dx);
    args.dgamma = view<InOut>(dgamma);
    args.dbeta = view<InOut>(dbeta);
    args.sums = {sums.data(), core::DType::f32, kRows * sums_per_row(norm)};
    ThreadPool pool(2);
    run(args, Context(pool));
  }
};

void add_sums(NormRank& a, NormRank& b) {
  for (std::size_t i = 0; i < a.sums.size(); ++i) a.sums[i] += b.sums[i];
  b.sums = a.sums;
}

// Two ranks that exchange their sums find what one does that has all columns.
TEST(Norm, InPartsIsTheNormOfAllColumns) {
  on_each_target([](const std::string& target) {
    for (const Norm norm : {Norm::layer, Norm::rms}) {
      constexpr std::int64_t kHalf = NormRank::kColumns / 2;
      NormRank whole(0, NormRank::kColumns);
      NormRank left(0, kHalf);
      NormRank right(kHalf, kHalf);
      whole.forward(norm, NormPart::whole);
      whole.backward(norm, NormPart::whole);
      for (NormRank* const half : {&left, &right}) half->forward(norm, NormPart::sums);
      add_sums(left, right);
      for (NormRank* const half : {&left, &right}) half->forward(norm, NormPart::rest);
      for (NormRank* const half : {&left, &right}) half->backward(norm, NormPart::sums);
      add_sums(left, right);
      for (NormRank* const half : {&left, &right}) half->backward(norm, NormPart::rest);
      for (const NormRank* const half : {&left, &right}) {
        const auto expect_near = [&](const std::vector<float>& found, const std::vector<float>& all) {
          for (std::size_t i = 0; i < found.size(); ++i) {
            const std::size_t row = i / kHalf;
            const std::size_t at = row * NormRank::kColumns + static_cast<std::size_t>(half->first) + i % kHalf;
            EXPECT_NEAR(found[i], all[at], 2e-5) << target << " " << i;
          }
        };
        expect_near(half->sum, whole.sum);
        expect_near(half->y, whole.y);
        expect_near(half->dx, whole.dx);
        expect_near(half->dgamma, whole.dgamma);
        expect_near(half->dbeta, whole.dbeta);
        for (std::size_t r = 0; r < NormRank::kRows; ++r) EXPECT_NEAR(half->rstd[r], whole.rstd[r], 1e-5) << target;
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::kernels
