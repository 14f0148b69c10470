#include "kernels/quantize/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

using core::DType;

TEST(Quantize, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(quantize_test_cases(), 2000), "");
}

struct Quantized {
  std::vector<std::int8_t> codes;
  std::vector<float> scales;
  std::vector<float> back;
};

Quantized quantized(const std::vector<float>& x, std::int64_t block) {
  const Quantize there{.count = static_cast<std::int64_t>(x.size()), .block = block};
  const auto blocks = static_cast<std::size_t>(there.blocks());
  Quantized result{std::vector<std::int8_t>(x.size()), std::vector<float>(blocks), std::vector<float>(x.size())};
  run_on_cpu(there, {x.data(), result.codes.data(), result.scales.data()}, 2);
  run_on_cpu(Dequantize{.count = there.count, .block = block},
             {result.codes.data(), result.scales.data(), result.back.data()}, 2);
  return result;
}

TEST(Quantize, CodesAreRoundedToNearestEven) {
  const Quantized q = quantized({127, -127, 0.5F, 1.5F, -2.5F, 0.49F, -0.0F}, 7);
  EXPECT_EQ(q.codes, (std::vector<std::int8_t>{127, -127, 0, 2, -2, 0, 0}));
  EXPECT_EQ(q.scales, std::vector<float>{1});
  EXPECT_EQ(q.back[4], -2);
}

TEST(Quantize, ThereAndBackIsWithinHalfAStep) {
  std::vector<float> x;
  for (int i = 0; i < 5000; ++i) x.push_back(std::sin(static_cast<float>(i)) * std::exp(static_cast<float>(i % 50)));
  const Quantized q = quantized(x, 100);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_LE(std::fabs(q.back[i] - x[i]), 0.5001F * q.scales[i / 100]) << i;
  }
}

TEST(Quantize, ZerosAndWhatIsAlmostZeroHaveTheScaleZero) {
  for (float tiny : {0.0F, 1e-45F, 1e-38F, std::nextafter(kSmallestLargest, 0.0F)}) {
    const Quantized q = quantized({tiny, -tiny, 0}, 3);
    EXPECT_EQ(q.scales[0], 0) << tiny;
    EXPECT_EQ(q.codes, std::vector<std::int8_t>(3, 0)) << tiny;
    EXPECT_EQ(q.back, std::vector<float>(3, 0)) << tiny;
  }
  const Quantized q = quantized({kSmallestLargest, 0}, 2);
  EXPECT_EQ(q.codes[0], 127);
  EXPECT_EQ(q.scales[0], 0x1p-126F);
}

TEST(Quantize, VeryLargeNumbersStayFinite) {
  const Quantized q = quantized({3.4028233e38F, -3.4028233e38F, 1}, 3);
  EXPECT_EQ(q.codes, (std::vector<std::int8_t>{127, -127, 0}));
  EXPECT_TRUE(std::isfinite(q.back[0]));
}

TEST(Quantize, ABlockThatIsNotFiniteComesBackAsNaNAndNoOther) {
  for (float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
    for (std::size_t place : {64UL, 65UL, 100UL, 127UL}) {
      std::vector<float> x(192, 1.0F);
      x[place] = bad;
      const Quantized q = quantized(x, 64);
      for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(std::isnan(q.back[i]), i / 64 == 1) << place << ' ' << i;
      EXPECT_EQ(q.codes[place], 0);
      EXPECT_EQ(q.codes[0], 127);
    }
  }
}

// Outputs larger than the caches are written with non-temporal stores: same results as in small parts.
TEST(Quantize, LargeOutputsAreAsSmallOnes) {
  std::vector<float> x((std::size_t{5} << 20) + 77);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 4093) * 0.07F - 100;
  for (std::int64_t block : {100, 256, 5000}) {
    const Quantized large = quantized(x, block);
    const std::size_t part = static_cast<std::size_t>(block) * 40;
    for (std::size_t i = 0; i < x.size(); i += part) {
      const std::size_t end = std::min(i + part, x.size());
      const auto at = [&](const auto& values, std::size_t k) {
        return values.begin() + static_cast<std::ptrdiff_t>(k);
      };
      const Quantized small = quantized({at(x, i), at(x, end)}, block);
      ASSERT_TRUE(std::equal(small.codes.begin(), small.codes.end(), at(large.codes, i))) << block << ' ' << i;
      ASSERT_TRUE(std::equal(small.back.begin(), small.back.end(), at(large.back, i))) << block << ' ' << i;
      ASSERT_TRUE(
          std::equal(small.scales.begin(), small.scales.end(), at(large.scales, i / static_cast<std::size_t>(block))));
    }
  }
}

TEST(QuantizeInt4, TwoCodesShareAByte) {
  const std::vector<float> x{7, -7, 0.5F, 1.5F, -2.5F, 14, -6, 2, -14};
  std::vector<std::uint8_t> codes(5);
  std::vector<float> scales(3);
  std::vector<float> back(9);
  run_on_cpu(QuantizeInt4{.count = 9, .block = 4}, {x.data(), codes.data(), scales.data()});
  EXPECT_EQ(codes, (std::vector<std::uint8_t>{0x97, 0x20, 0x7f, 0x1d, 0x09}));
  EXPECT_EQ(scales, (std::vector<float>{1, 2, 2}));
  run_on_cpu(DequantizeInt4{.count = 9, .block = 4}, {codes.data(), scales.data(), back.data()});
  EXPECT_EQ(back, (std::vector<float>{7, -7, 0, 2, -2, 14, -6, 2, -14}));
  EXPECT_EQ(refusal(QuantizeInt4{.count = 4, .block = 3}), "quantize_int4: block is 3; allowed: even numbers");
}

TEST(QuantizeInt4, ABlockThatIsNotFiniteComesBackAsNaNAndNoOther) {
  std::vector<float> x(192, 1.0F);
  x[100] = -INFINITY;
  std::vector<std::uint8_t> codes(96);
  std::vector<float> scales(3);
  run_on_cpu(QuantizeInt4{.count = 192, .block = 64}, {x.data(), codes.data(), scales.data()});
  EXPECT_EQ(scales[0], 1.0F / 7);
  EXPECT_TRUE(std::isnan(scales[1]));
  EXPECT_EQ(codes[32], 0);
  EXPECT_EQ(codes[31], 0x77);
}

TEST(Quantize, Refusals) {
  EXPECT_EQ(refusal(Quantize{.count = 0}), "quantize_int8: count is 0; allowed: at least 1");
  EXPECT_EQ(refusal(Quantize{.count = 1, .block = 0}), "quantize_int8: block is 0; allowed: at least 1");
  EXPECT_EQ(refusal(Dequantize{.count = -1}), "dequantize_int8: count is -1; allowed: at least 1");
  EXPECT_EQ(refusal(Dequantize{.count = 1, .block = -8}), "dequantize_int8: block is -8; allowed: at least 1");
  const std::vector<float> x(300);
  std::vector<std::int8_t> codes(300);
  Quantize args{.count = 300};
  args.x = {x.data(), DType::f32, 300};
  args.codes = {codes.data(), DType::i8, 300};
  std::vector<float> scales(2);
  args.scales = {scales.data(), DType::f32, 1};
  EXPECT_EQ(refusal(args), "quantize_int8: scales has 1 elements; its shape requires 2");
  args.scales.elems = 2;
  EXPECT_EQ(refusal(args), "");
  args.codes.dtype = DType::u8;
  EXPECT_EQ(refusal(args), "quantize_int8: codes is uint8; allowed: int8");
}

}  // namespace
}  // namespace lockstep::kernels
