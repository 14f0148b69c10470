#include "kernels/compress/compress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/base/context.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

struct Coded {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  std::vector<float> decoded;
};

Coded code(const std::vector<float>& x, std::int64_t block) {
  const EncodeSigns encode{.count = static_cast<std::int64_t>(x.size()), .block = block};
  Coded coded{std::vector<std::uint8_t>(static_cast<std::size_t>(encode.code_elems())),
              std::vector<float>(static_cast<std::size_t>(encode.blocks())), std::vector<float>(x.size())};
  run_on_cpu(encode, {x.data(), coded.codes.data(), coded.scales.data()}, 2);
  run_on_cpu(DecodeSigns{.count = encode.count, .block = block},
             {coded.codes.data(), coded.scales.data(), coded.decoded.data()}, 2);
  return coded;
}

TEST(Compress, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(compress_test_cases()), "");
}

TEST(Sign, ABlockBecomesItsMeanMagnitudeWithSigns) {
  on_each_target([](const std::string& target) {
    const Coded coded = code({1, -2, 3, -0.0F, -4, 0, 0, 6, -10, 30}, 8);
    EXPECT_EQ(coded.codes, (std::vector<std::uint8_t>{0b00011010, 0b01})) << target;
    EXPECT_EQ(coded.scales, (std::vector<float>{2, 20})) << target;
    EXPECT_EQ(coded.decoded, (std::vector<float>{2, -2, 2, -2, -2, 2, 2, 2, -20, 20})) << target;
  });
}

TEST(Sign, WhatIsNotFiniteMakesItsBlockNaN) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf}) {
    std::vector<float> x(48, 1.0F);
    x[20] = bad;
    const Coded coded = code(x, 16);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(coded.decoded[i]), i / 16 == 1) << bad << ' ' << i;
  }
}

TEST(Sign, Refusals) {
  EncodeSigns args{.count = 5, .block = 12};
  EXPECT_EQ(refusal(args), "encode_signs: block is 12; allowed: multiples of 8");
}

struct Taken {
  std::vector<float> values;
  std::vector<std::int32_t> indices;
};

Taken take(const std::vector<float>& x, std::int64_t k, float at = 0, int threads = 2) {
  Taken taken{std::vector<float>(static_cast<std::size_t>(k)), std::vector<std::int32_t>(static_cast<std::size_t>(k))};
  run_on_cpu(TopK{.count = static_cast<std::int64_t>(x.size()), .k = k, .at = at},
             {x.data(), taken.values.data(), taken.indices.data()}, threads);
  return taken;
}

TEST(TopK, OfEqualOnesThoseOfLowerIndex) {
  const std::vector<float> x{1, -2, 2, 0, 2, -0.0F, 5, -2};
  EXPECT_EQ(take(x, 3).indices, (std::vector<std::int32_t>{1, 2, 6}));
  EXPECT_EQ(take(x, 3).values, (std::vector<float>{-2, 2, 5}));
  EXPECT_EQ(take(std::vector<float>(100'000, 3.0F), 3).indices, (std::vector<std::int32_t>{0, 1, 2}));
}

TEST(TopK, LeavesRoomWhereTooFewAreLargeEnough) {
  const Taken taken = take({1, -2, 2, 0, 4}, 4, 2);
  EXPECT_EQ(taken.indices, (std::vector<std::int32_t>{1, 2, 4, -1}));
  EXPECT_EQ(taken.values, (std::vector<float>{-2, 2, 4, 0}));
}

TEST(TopK, TakesNaNAndInfinityFirst) {
  std::vector<float> x(50'000, 1.0F);
  x[40'000] = std::numeric_limits<float>::quiet_NaN();
  x[20'000] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(take(x, 2).indices, (std::vector<std::int32_t>{20'000, 40'000}));
  EXPECT_TRUE(std::isnan(take(x, 1).values[0]));
}

// Here a sample of some elements misleads about the others.
TEST(TopK, IsExactWhereASampleMisleads) {
  std::vector<float> rising(200'000);
  for (std::size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<float>(i < 100'000 ? i : 200'000 - i);
  std::vector<float> few(200'000, 0.0F);
  few[7] = 1;
  few[150'001] = -1;
  for (const int threads : {1, 3}) {
    EXPECT_EQ(take(rising, 3, 0, threads).indices, (std::vector<std::int32_t>{99'999, 100'000, 100'001})) << threads;
    EXPECT_EQ(take(few, 4, 0, threads).indices, (std::vector<std::int32_t>{0, 1, 7, 150'001})) << threads;
  }
}

TEST(ScatterAdd, LeavesOutWhatHasNoIndex) {
  const std::vector<float> values{1, 2, 0, 0};
  const std::vector<std::int32_t> indices{2, 4, -1, -1};
  std::vector<float> y{10, 20, 30, 40, 50};
  run_on_cpu(ScatterAdd{.count = 5, .k = 4}, {values.data(), indices.data(), y.data()});
  EXPECT_EQ(y, (std::vector<float>{10, 20, 31, 40, 52}));
}

TEST(TopK, Refusals) {
  EXPECT_EQ(refusal(TopK{.count = 3, .k = 4}), "top_k: count is 3; allowed: at least 4");
  EXPECT_EQ(refusal(TopK{.count = std::int64_t{1} << 31, .k = 4}),
            "top_k: count is 2147483648; allowed: at most 2147483647, as indices are i32");
}

}  // namespace
}  // namespace lockstep::kernels
