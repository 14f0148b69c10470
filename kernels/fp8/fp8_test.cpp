#include "kernels/fp8/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "kernels/fp8/gemm_fp8.h"
#include "kernels/registry.h"
#include "testing/kernels/kernel_checks.h"

namespace lockstep::kernels {
namespace {

using core::DType;

TEST(Fp8, CasesHoldOnTheCpu) {
  EXPECT_EQ(errors_on_each_target(fp8_test_cases(), 2000), "");
}

// Finds the smallest power of two with which the largest value fits, by trial.
TEST(Fp8, ScalesAreTheSmallestPowersOfTwoThatFit) {
  for (const DType format : {DType::f8e4m3, DType::f8e5m2}) {
    for (float largest : {1.0F, 1.75F, std::nextafter(1.75F, 2.0F), 448.0F, 449.0F, 57344.0F, 57345.0F, 1e-20F, 1e30F,
                          3.4e38F, std::nextafter(2.0F, 1.0F)}) {
      const float scale = fp8_scale(largest, format);
      int exponent = 0;
      EXPECT_EQ(std::frexp(scale, &exponent), 0.5F) << largest;
      EXPECT_LE(largest / scale, largest_number(format)) << largest;
      EXPECT_GT(2 * (largest / scale), largest_number(format)) << largest;
    }
    EXPECT_EQ(fp8_scale(0, format), 1);
    EXPECT_TRUE(std::isnan(fp8_scale(INFINITY, format)));
    EXPECT_TRUE(std::isnan(fp8_scale(NAN, format)));
    EXPECT_EQ(fp8_scale(1e-45F, format), 0x1p-126F);
  }
}

struct Encoded {
  std::vector<float> largest;
  std::vector<float> scales;
  std::vector<std::uint8_t> codes;
  std::vector<float> back;
};

Encoded encoded(Fp8Encode args, const std::vector<float>& x, const std::vector<float>& previous = {}) {
  const auto blocks = static_cast<std::size_t>(args.blocks());
  Encoded result{std::vector<float>(blocks), std::vector<float>(blocks), std::vector<std::uint8_t>(x.size()),
                 std::vector<float>(x.size())};
  args.delayed = !previous.empty();
  std::vector<const void*> memory{x.data()};
  if (args.delayed) memory.push_back(previous.data());
  memory.insert(memory.end(), {result.largest.data(), result.scales.data(), result.codes.data()});
  run_on_cpu(args, memory, 2);
  run_on_cpu(Fp8Decode{.rows = args.rows, .columns = args.columns, .per = args.per, .from = args.to},
             {result.codes.data(), result.scales.data(), result.back.data()}, 2);
  return result;
}

std::vector<float> spread_numbers(std::size_t count) {
  std::vector<float> x;
  for (std::size_t i = 0; i < count; ++i) {
    x.push_back(std::sin(static_cast<float>(i)) * std::exp(static_cast<float>(i % 37) - 18));
  }
  return x;
}

TEST(Fp8, CodesAreTheBitsOfCoreConversions) {
  const std::vector<float> x = spread_numbers(140 * 150);
  for (const ScalePer per : {ScalePer::tensor, ScalePer::row, ScalePer::tile, ScalePer::block}) {
    for (const DType to : {DType::f8e4m3, DType::f8e5m2}) {
      for (const bool transposed : {false, true}) {
        const Encoded result =
            encoded({.rows = 140, .columns = 150, .per = per, .to = to, .transposed = transposed}, x);
        const ScaleGrid grid = scale_grid(per, 140, 150);
        for (std::int64_t row = 0; row < 140; ++row) {
          for (std::int64_t column = 0; column < 150; ++column) {
            const auto block =
                static_cast<std::size_t>(row / grid.block_rows * grid.across() + column / grid.block_columns);
            const float from = x[static_cast<std::size_t>(transposed ? column * 140 + row : row * 150 + column)];
            const float scaled = from / result.scales[block];
            const std::uint8_t wanted =
                to == DType::f8e4m3 ? core::to_float8_e4m3(scaled).bits : core::to_float8_e5m2(scaled).bits;
            ASSERT_EQ(result.codes[static_cast<std::size_t>(row * 150 + column)], wanted)
                << name_of(per) << ' ' << row << ' ' << column << ' ' << from;
          }
        }
      }
    }
  }
}

// The error is at most half a unit of the last of three (or two) mantissa bits, or of the smallest number.
TEST(Fp8, ThereAndBackIsWithinHalfAUnit) {
  const std::vector<float> x = spread_numbers(64 * 64);
  for (const DType to : {DType::f8e4m3, DType::f8e5m2}) {
    const float unit = to == DType::f8e4m3 ? 0x1p-4F : 0x1p-3F;
    const float smallest = to == DType::f8e4m3 ? 0x1p-10F : 0x1p-17F;
    const Encoded result = encoded({.rows = 64, .columns = 64, .to = to}, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_LE(std::fabs(result.back[i] - x[i]), std::max(unit * std::fabs(x[i]), smallest * result.scales[0]))
          << x[i];
    }
  }
}

TEST(Fp8, DelayedScalesComeFromBeforeAndSaturate) {
  const Encoded result = encoded({.rows = 1, .columns = 4}, {1000, -1000, 3, 0}, {448});
  EXPECT_EQ(result.largest, std::vector<float>{1000});
  EXPECT_EQ(result.scales, std::vector<float>{1});
  EXPECT_EQ(result.back, (std::vector<float>{448, -448, 3, 0}));
  for (const float unknown : {0.0F, INFINITY, NAN}) {
    EXPECT_EQ(encoded({.rows = 1, .columns = 2}, {1000, 2}, {unknown}).scales, std::vector<float>{4}) << unknown;
  }
}

TEST(Fp8, ABlockThatIsNotFiniteComesBackAsNaNAndNoOther) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    for (const bool transposed : {false, true}) {
      std::vector<float> x(3 * 200, 1.0F);
      x[transposed ? 5 * 3 + 1 : 200 + 5] = bad;
      const Encoded result = encoded({.rows = 3, .columns = 200, .per = ScalePer::tile, .transposed = transposed}, x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_EQ(std::isnan(result.back[i]), i >= 200 && i < 328) << bad << ' ' << i;
      }
    }
  }
}

TEST(Fp8, ABlockOfZerosHasTheScaleOne) {
  const Encoded result = encoded({.rows = 2, .columns = 3, .per = ScalePer::row}, {0, -0.0F, 0, 1, 2, 3});
  EXPECT_EQ(result.scales[0], 1);
  EXPECT_EQ(result.largest, (std::vector<float>{0, 3}));
  EXPECT_EQ(result.codes[0], 0);
}

// Decoding is exact in bf16, so products of decoded numbers equal products of codes.
TEST(Fp8, ResultsInBf16AndF32AreTheSameSums) {
  const std::vector<float> x = spread_numbers(8 * 32);
  const Encoded a = encoded({.rows = 8, .columns = 32, .per = ScalePer::row}, x);
  const Encoded b = encoded({.rows = 8, .columns = 32}, x);
  std::vector<float> wide(64);
  std::vector<core::BFloat16> narrow(64);
  const auto multiply = [&](Out y) {
    GemmFp8 product{.shape = {.m = 8, .n = 8, .k = 32, .a_per = ScalePer::row}};
    product.a = {a.codes.data(), DType::f8e4m3, 256};
    product.a_scales = {a.scales.data(), DType::f32, 8};
    product.b = {b.codes.data(), DType::f8e4m3, 256};
    product.b_scales = {b.scales.data(), DType::f32, 1};
    product.y = y;
    ThreadPool pool(1);
    run(product, Context(pool));
  };
  multiply({wide.data(), DType::f32, 64});
  multiply({narrow.data(), DType::bf16, 64});
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_NEAR(core::to_float(narrow[i]), wide[i], std::fabs(wide[i]) / 128) << i;
  }
}

TEST(Fp8, RefusalsNameWhatIsWrong) {
  EXPECT_EQ(refusal(Fp8Encode{.rows = 0, .columns = 1}), "fp8_encode: rows is 0; allowed: at least 1");
  EXPECT_EQ(refusal(Fp8Encode{.rows = 1, .columns = 1, .to = DType::f16}),
            "fp8_encode: to is half; allowed: f8e4m3, f8e5m2");
  EXPECT_EQ(refusal(GemmFp8{.shape = {.m = 1, .n = 1, .k = 1, .a_per = ScalePer::row, .b_per = ScalePer::block}}),
            "gemm_fp8: scales per row and per block; allowed: both of tensor, row, or both of tile, block");
}

}  // namespace
}  // namespace lockstep::kernels
