#include "kernels/sign/sign.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/base/case_checks.h"
#include "kernels/base/context.h"
#include "kernels/registry.h"

namespace lockstep::kernels {
namespace {

using core::DType;

struct Coded {
  std::vector<std::uint8_t> codes;
  std::vector<float> scales;
  std::vector<float> decoded;
};

Coded code(const std::vector<float>& x, std::int64_t block) {
  ThreadPool pool(2);
  const auto count = static_cast<std::int64_t>(x.size());
  EncodeSigns encode{count, block, {x.data(), DType::f32, count}};
  Coded coded{std::vector<std::uint8_t>(static_cast<std::size_t>(encode.code_elems())),
              std::vector<float>(static_cast<std::size_t>(encode.blocks())), std::vector<float>(x.size())};
  encode.codes = {coded.codes.data(), DType::u8, encode.code_elems()};
  encode.scales = {coded.scales.data(), DType::f32, encode.blocks()};
  run(encode, Context(pool));
  DecodeSigns decode{count, block, {coded.codes.data(), DType::u8, encode.code_elems()}};
  decode.scales = {coded.scales.data(), DType::f32, encode.blocks()};
  decode.y = {coded.decoded.data(), DType::f32, count};
  run(decode, Context(pool));
  return coded;
}

TEST(Sign, CasesHoldOnTheCpu) {
  on_each_target([](const std::string& target) {
    for (const KernelCase& one : sign_test_cases()) EXPECT_EQ(cpu_errors(one), "") << target;
  });
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

}  // namespace
}  // namespace lockstep::kernels
