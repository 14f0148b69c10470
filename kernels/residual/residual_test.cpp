#include "kernels/residual/residual.h"

#include <gtest/gtest.h>

#include <cmath>
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

std::vector<float> dropped(const std::vector<float>& x, Dropout shape) {
  std::vector<float> y(x.size());
  shape.count = static_cast<std::int64_t>(x.size());
  run_on_cpu(shape, {x.data(), y.data()});
  return y;
}

// Known answers of the generator's authors: Random123, tests/kat_vectors, philox4x32 10.
TEST(Dropout, PhiloxGivesTheKnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(philox_block(0x299f31d0'a4093822, 0x03707344'13198a2e, 0x85a308d3'243f6a88),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Dropout, ShardsDrawTheWholesMask) {
  on_each_target([](const std::string& target) {
    const Dropout shape{.count = 0, .rate = 0.5F, .seed = 11, .step = 5};
    const std::vector<float> whole = dropped(std::vector<float>(1000, 1.0F), shape);
    for (const std::size_t begin : {1U, 2U, 3U, 250U, 511U}) {
      Dropout shard = shape;
      shard.first_element = begin;
      const std::vector<float> part = dropped(std::vector<float>(100, 1.0F), shard);
      EXPECT_EQ(part, std::vector<float>(whole.begin() + static_cast<std::ptrdiff_t>(begin),
                                         whole.begin() + static_cast<std::ptrdiff_t>(begin) + 100))
          << target << " " << begin;
    }
  });
}

TEST(Dropout, TheShareKeptIsThatOfTheRateAndChangesWithSeedAndStep) {
  const std::vector<float> ones(200'000, 1.0F);
  const Dropout shape{.count = 0, .rate = 0.3F, .seed = 1, .step = 1};
  const std::vector<float> first = dropped(ones, shape);
  double sum = 0;
  for (float value : first) sum += static_cast<double>(value);
  EXPECT_NEAR(sum / 200'000, 1, 5 * std::sqrt(0.3 / 0.7 / 200'000));  // five standard deviations
  Dropout other = shape;
  other.seed = 2;
  EXPECT_NE(dropped(ones, other), first);
  other = shape;
  other.step = 2;
  EXPECT_NE(dropped(ones, other), first);
}

TEST(Dropout, ARateOfZeroKeepsAllAndNaNIsCarriedWhereKept) {
  const std::vector<float> x{1, 2, std::nanf(""), 4, 5};
  const std::vector<float> y = dropped(x, {.count = 0, .rate = 0});
  EXPECT_EQ(y[0], 1);
  EXPECT_TRUE(std::isnan(y[2]));
  const std::vector<float> nans(4000, std::nanf(""));
  int zeros = 0;
  for (float value : dropped(nans, {.count = 0, .rate = 0.5F})) zeros += value == 0 ? 1 : 0;
  EXPECT_NEAR(zeros, 2000, 160);
}

TEST(Dropout, RatesOutsideOfZeroToOneAreRefused) {
  for (float rate : {-0.1F, 1.0F, std::nanf("")}) {
    EXPECT_THROW(dropped({1, 2}, {.count = 0, .rate = rate}), core::Error) << rate;
  }
}

TEST(Residual, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(residual_test_cases()), "");
}

TEST(Residual, AddsInPlaceOfEitherOperandAndCarriesNaNAndInfinity) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> a{1, kInf, kInf, std::nanf("")};
  std::vector<float> b{2, 1, -kInf, 1};
  for (std::vector<float>* y : {&a, &b}) {
    run_on_cpu(ResidualAdd{.count = 4}, {a.data(), b.data(), y->data()});
    EXPECT_EQ((*y)[1], kInf);
    EXPECT_TRUE(std::isnan((*y)[2]));
    EXPECT_TRUE(std::isnan((*y)[3]));
  }
  EXPECT_EQ(a[0], 3);
  EXPECT_EQ(b[0], 5);
}

}  // namespace
}  // namespace lockstep::kernels
