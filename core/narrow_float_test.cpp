#include "core/narrow_float.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "core/random.h"

namespace lockstep::core {
namespace {

// Everything below runs for each of the four formats.
template <typename T>
struct Traits;
template <>
struct Traits<Float16> {
  static constexpr std::uint32_t kCodes = 0x10000, kSign = 0x8000;
  static Float16 encode(float x) { return to_float16(x); }
};
template <>
struct Traits<BFloat16> {
  static constexpr std::uint32_t kCodes = 0x10000, kSign = 0x8000;
  static BFloat16 encode(float x) { return to_bfloat16(x); }
};
template <>
struct Traits<Float8E4M3> {
  static constexpr std::uint32_t kCodes = 0x100, kSign = 0x80;
  static Float8E4M3 encode(float x) { return to_float8_e4m3(x); }
};
template <>
struct Traits<Float8E5M2> {
  static constexpr std::uint32_t kCodes = 0x100, kSign = 0x80;
  static Float8E5M2 encode(float x) { return to_float8_e5m2(x); }
};

template <typename T>
T from_code(std::uint32_t code) {
  return T{static_cast<decltype(T::bits)>(code)};
}

template <typename T>
class NarrowFloat : public testing::Test {};
using Formats = testing::Types<Float16, BFloat16, Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(NarrowFloat, Formats);

TYPED_TEST(NarrowFloat, EveryCodeSurvivesTheWayThroughFloat) {
  for (std::uint32_t code = 0; code < Traits<TypeParam>::kCodes; ++code) {
    const float x = to_float(from_code<TypeParam>(code));
    const TypeParam back = Traits<TypeParam>::encode(x);
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(to_float(back))) << code;
    } else {
      EXPECT_EQ(back.bits, code);
    }
  }
}

TYPED_TEST(NarrowFloat, CodesOfOneSignRiseWithTheirValue) {
  float previous = -1;
  for (std::uint32_t code = 0; code < Traits<TypeParam>::kSign; ++code) {
    const float x = to_float(from_code<TypeParam>(code));
    if (std::isnan(x)) continue;
    EXPECT_GT(x, previous) << code;
    EXPECT_EQ(to_float(from_code<TypeParam>(code | Traits<TypeParam>::kSign)), -x);
    previous = x;
  }
}

// Between two neighbours, the midpoint rounds to the even code, and anything past it to the nearer neighbour.
TYPED_TEST(NarrowFloat, RoundsToNearestTiesToEven) {
  for (std::uint32_t code = 0; code + 1 < Traits<TypeParam>::kSign; ++code) {
    const float low = to_float(from_code<TypeParam>(code));
    const float high = to_float(from_code<TypeParam>(code + 1));
    if (!std::isfinite(high)) break;
    const float middle = static_cast<float>((static_cast<double>(low) + static_cast<double>(high)) / 2);
    EXPECT_EQ(Traits<TypeParam>::encode(middle).bits, code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(Traits<TypeParam>::encode(std::nextafter(middle, low)).bits, code);
    EXPECT_EQ(Traits<TypeParam>::encode(std::nextafter(middle, high)).bits, code + 1);
    EXPECT_EQ(Traits<TypeParam>::encode(-middle).bits, (code % 2 == 0 ? code : code + 1) | Traits<TypeParam>::kSign);
  }
}

TYPED_TEST(NarrowFloat, NanStaysNanWithItsSign) {
  EXPECT_TRUE(std::isnan(to_float(Traits<TypeParam>::encode(std::nanf("")))));
  EXPECT_TRUE(std::isnan(to_float(Traits<TypeParam>::encode(-std::nanf("")))));
}

TEST(NarrowFloatLimits, AreThoseOfTheStandards) {
  EXPECT_EQ(to_float(Float16{0x7bff}), 65504.0f);
  EXPECT_EQ(to_float(Float16{0x0001}), 0x1p-24f);
  EXPECT_EQ(to_float(BFloat16{0x7f7f}), 0x1.fep127f);
  EXPECT_EQ(to_float(Float8E4M3{0x7e}), 448.0f);
  EXPECT_EQ(to_float(Float8E4M3{0x01}), 0x1p-9f);
  EXPECT_TRUE(std::isnan(to_float(Float8E4M3{0x7f})));
  EXPECT_EQ(to_float(Float8E5M2{0x7b}), 57344.0f);
  EXPECT_TRUE(std::isinf(to_float(Float8E5M2{0x7c})));
}

TEST(NarrowFloatLimits, OverflowGoesWhereTheHeaderSays) {
  EXPECT_EQ(to_float16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(to_float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(to_float16(-INFINITY).bits, 0xfc00);
  EXPECT_EQ(to_bfloat16(3.4e38f).bits, 0x7f80);
  EXPECT_EQ(to_float8_e4m3(464.0f).bits, 0x7e);  // the midpoint: 448 is even
  EXPECT_EQ(to_float8_e4m3(465.0f).bits, 0x7f);
  EXPECT_EQ(to_float8_e4m3(INFINITY).bits, 0x7f);
  EXPECT_EQ(to_float8_e5m2(61440.0f).bits, 0x7c);
  EXPECT_EQ(to_float8_e5m2(-1e9f).bits, 0xfc);
}

TEST(NarrowFloatLimits, UnderflowGoesToZeroOfTheSameSign) {
  EXPECT_EQ(to_float16(0x1p-25f).bits, 0);  // half of the smallest: a tie, to even
  EXPECT_EQ(to_float16(0x1.8p-25f).bits, 1);
  EXPECT_EQ(to_float16(-0x1p-149f).bits, 0x8000);
  EXPECT_EQ(to_float8_e4m3(0x1p-10f).bits, 0);
  EXPECT_EQ(to_float8_e5m2(-0x1p-149f).bits, 0x80);
}

// Compares Float16 with the compiler's own type over random bit patterns.
TEST(Float16Test, AgreesWithTheHardware) {
#ifdef __FLT16_MANT_DIG__
  Random random(11);
  for (int k = 0; k < 200000; ++k) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
    if (std::isnan(x)) continue;
    EXPECT_EQ(to_float16(x).bits, std::bit_cast<std::uint16_t>(static_cast<_Float16>(x))) << x;
  }
#else
  GTEST_SKIP() << "this compiler has no _Float16";
#endif
}

}  // namespace
}  // namespace lockstep::core
