#include "core/dtype.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

#include "core/error.h"
#include "core/options.h"
#include "core/random.h"
#include "testing/core/thrown.h"

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

TEST(NarrowFloatLimits, OverflowGoesWhereTheHeaderStates) {
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

TEST(DTypeTest, NamesAreNcclTestsInItsOrder) {
  std::vector<std::string> names;
  for (DType dtype : all_dtypes()) names.emplace_back(name_of(dtype));
  const std::vector<std::string> expected{"int8", "uint8", "int32",  "uint32",   "int64",  "uint64",
                                          "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2"};
  EXPECT_EQ(names, expected);
}

TEST(DTypeTest, EveryNameParsesToItself) {
  for (DType dtype : all_dtypes()) EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
  for (ReduceOp op : all_reduce_ops()) EXPECT_EQ(parse_reduce_op(name_of(op)), op);
  EXPECT_EQ(parse_dtype("f32"), DType::f32);
  EXPECT_EQ(parse_dtype("bf16"), DType::bf16);
  EXPECT_EQ(parse_dtype("e5m2"), DType::f8e5m2);
  EXPECT_EQ(parse_dtype("i64"), DType::i64);
}

TEST(DTypeTest, UnknownNamesAreRefusedWithWhatIsAllowed) {
  EXPECT_EQ(refusal_of([] { parse_dtype("f12"); }),
            "unknown datatype 'f12'; allowed: int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 "
            "f8e5m2 all");
  EXPECT_EQ(refusal_of([] { parse_reduce_op("mean"); }), "unknown operation 'mean'; allowed: sum prod max min avg all");
}

TEST(DTypeTest, SizesAndSignificands) {
  EXPECT_EQ(size_of(DType::f8e4m3), 1u);
  EXPECT_EQ(size_of(DType::bf16), 2u);
  EXPECT_EQ(size_of(DType::u64), 8u);
  EXPECT_EQ(significand_bits(DType::f16), 11);
  EXPECT_EQ(significand_bits(DType::f8e5m2), 3);
  EXPECT_EQ(significand_bits(DType::i32), 31);
  EXPECT_TRUE(is_floating(DType::f8e4m3));
  EXPECT_FALSE(is_floating(DType::u8));
}

TEST(SumTolerance, IsZeroWhereNothingIsRounded) {
  EXPECT_EQ(sum_tolerance(DType::i32, 1000), 0);
  EXPECT_EQ(sum_tolerance(DType::f32, 0), 0);
  EXPECT_EQ(sum_tolerance(DType::f32, 1), 0);
}

TEST(SumTolerance, IsHighamsBoundAndNeverAboveOne) {
  const double u = std::ldexp(1.0, -24);
  EXPECT_DOUBLE_EQ(sum_tolerance(DType::f32, 2), u / (1 - u));
  EXPECT_DOUBLE_EQ(sum_tolerance(DType::f32, 1001), 1000 * u / (1 - 1000 * u));
  EXPECT_EQ(sum_tolerance(DType::f8e5m2, 1000), 1);
  for (DType dtype : all_dtypes()) {
    EXPECT_LE(sum_tolerance(dtype, 10), sum_tolerance(dtype, 100)) << name_of(dtype);
  }
}

template <typename T>
T reduced(DType dtype, ReduceOp op, T a, T b) {
  T result{};
  reduce_scalar(dtype, op, &result, &a, &b, 1);
  return result;
}

template <typename T>
T averaged(DType dtype, T sum, int num_ranks) {
  finish_average(dtype, &sum, 1, num_ranks);
  return sum;
}

TEST(ReduceScalar, IntegersWrapAround) {
  EXPECT_EQ(reduced<std::int8_t>(DType::i8, ReduceOp::sum, 100, 100), -56);
  EXPECT_EQ(reduced<std::uint8_t>(DType::u8, ReduceOp::prod, 200, 3), 88);
  const std::int32_t big = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(reduced<std::int32_t>(DType::i32, ReduceOp::sum, big, 1), std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(reduced<std::uint32_t>(DType::u32, ReduceOp::prod, 0x80000001u, 2u), 2u);
  EXPECT_EQ(reduced<std::int64_t>(DType::i64, ReduceOp::prod, std::int64_t{1} << 62, 4), 0);
  EXPECT_EQ(reduced<std::uint64_t>(DType::u64, ReduceOp::sum, ~std::uint64_t{0}, 2u), 1u);
}

TEST(ReduceScalar, MaxAndMinKnowSigns) {
  EXPECT_EQ(reduced<std::int8_t>(DType::i8, ReduceOp::max, -3, 2), 2);
  EXPECT_EQ(reduced<std::uint8_t>(DType::u8, ReduceOp::max, 0xfd, 2), 0xfd);
  EXPECT_EQ(reduced<double>(DType::f64, ReduceOp::min, -1.5, 1.0), -1.5);
  EXPECT_EQ(reduced(DType::f8e5m2, ReduceOp::min, to_float8_e5m2(-4), to_float8_e5m2(-2)).bits,
            to_float8_e5m2(-4).bits);
}

TEST(ReduceScalar, NarrowFloatsRoundOnceAnOperation) {
  // 2048 + 1 lies in the middle between two f16 numbers and rounds to the even one; 2048 + 3 is nearer to 2052.
  EXPECT_EQ(to_float(reduced(DType::f16, ReduceOp::sum, to_float16(2048), to_float16(1))), 2048.0f);
  EXPECT_EQ(to_float(reduced(DType::f16, ReduceOp::sum, to_float16(2048), to_float16(3))), 2052.0f);
  EXPECT_EQ(to_float(reduced(DType::bf16, ReduceOp::prod, to_bfloat16(3), to_bfloat16(-0.5f))), -1.5f);
  EXPECT_EQ(to_float(reduced(DType::f8e4m3, ReduceOp::sum, to_float8_e4m3(16), to_float8_e4m3(1))), 16.0f);
}

TEST(ReduceScalar, DestinationMayBeASource) {
  float data[3] = {1, 2, 3};
  const float more[3] = {10, 20, 30};
  reduce_scalar(DType::f32, ReduceOp::avg, data, data, more, 3);
  EXPECT_EQ(data[0], 11);
  EXPECT_EQ(data[2], 33);
}

TEST(FinishAverage, DividesOnceAndTruncatesIntegers) {
  EXPECT_EQ(averaged<std::int8_t>(DType::i8, -7, 2), -3);
  EXPECT_EQ(averaged<std::int8_t>(DType::i8, 127, 128), 0);  // the divisor does not fit into the type
  EXPECT_EQ(averaged<std::uint8_t>(DType::u8, 255, 300), 0);
  EXPECT_EQ(averaged<std::uint64_t>(DType::u64, ~std::uint64_t{0}, 3), 0x5555555555555555u);
  EXPECT_EQ(averaged<float>(DType::f32, 1.0f, 3), 1.0f / 3.0f);
  EXPECT_EQ(averaged<double>(DType::f64, 1.0, 3), 1.0 / 3.0);
  EXPECT_EQ(averaged(DType::bf16, to_bfloat16(7), 3).bits, to_bfloat16(7.0f / 3.0f).bits);
  EXPECT_EQ(averaged(DType::f8e4m3, to_float8_e4m3(5), 3).bits, to_float8_e4m3(5.0f / 3.0f).bits);
}

TEST(Random, IsSplitMix64) {
  Random random(0);  // first outputs of the published generator for seed 0
  EXPECT_EQ(random.next(), 0xe220a8397b1dcdafu);
  EXPECT_EQ(random.next(), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(random.next(), 0x06c45d188009454fu);
}

TEST(Random, BelowStaysBelowAndCoversAll) {
  Random random(7);
  std::array<int, 5> seen{};
  for (int k = 0; k < 5000; ++k) ++seen.at(random.below(5));
  for (int count : seen) EXPECT_NEAR(count, 1000, 150);
}

TEST(Random, UniformIsInTheHalfOpenUnitInterval) {
  Random random(7);
  double sum = 0;
  for (int k = 0; k < 10000; ++k) {
    const double x = random.uniform();
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

TEST(Hash, TellsItsArgumentsApart) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (std::uint64_t a = 0; a < 8; ++a) {
      for (std::uint64_t b = 0; b < 8; ++b) seen.insert(hash64(seed, a, b));
    }
  }
  EXPECT_EQ(seen.size(), 512u);
}

TEST(TextOfFile, ReadsWhatWindowsWrites) {
  const std::string path = testing::TempDir() + "text_of_file_" + std::to_string(getpid());
  const auto read = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return text_of_file(path, "a text");
  };
  EXPECT_EQ(read(""), "");
  EXPECT_EQ(read("\xEF\xBB\xBFone\r\ntwo\r\n"), "one\ntwo\n");
  EXPECT_EQ(read("one\rtwo\r"), "one\rtwo\r") << "only ends of lines";
  EXPECT_EQ(bytes_of_file(path, "a text"), "one\rtwo\r");
  const auto refused = [](const std::string& file, const std::string& shown) {
    return refusal_of([&] { text_of_file(file, "a text", shown); });
  };
  std::ofstream(path, std::ios::binary) << std::string("\xFF\xFEo\0n\0", 6);
  EXPECT_EQ(refused(path, "--csv a"), "--csv a: is in UTF-16; allowed: UTF-8");
  EXPECT_EQ(refused("/nonexistent", ""), "/nonexistent: cannot be read: No such file or directory; allowed: a text");
  EXPECT_EQ(refused("/", "--csv /"), "--csv /: cannot be read: Is a directory; allowed: a text");
  std::remove(path.c_str());
}

TEST(ParseSize, KnowsNumbersAndUnits) {
  EXPECT_EQ(parse_size("0"), 0);
  EXPECT_EQ(parse_size("8"), 8);
  EXPECT_EQ(parse_size("8B"), 8);
  EXPECT_EQ(parse_size("64K"), 65536);
  EXPECT_EQ(parse_size("64k"), 65536);
  EXPECT_EQ(parse_size("64KB"), 65536);
  EXPECT_EQ(parse_size("1.5MiB"), 1572864);
  EXPECT_EQ(parse_size("2g"), std::int64_t{2} << 30);
}

TEST(ParseSize, RefusesWhatIsNoSize) {
  for (const char* text : {"", "K", "-1", "12Q", "1e3", "8 K", "nan", "inf", "1KK", "0x10", "64Kibi", "99999999999G"}) {
    EXPECT_EQ(parse_size(text), std::nullopt) << text;
  }
}

TEST(FormatSize, UsesTheLargestUnit) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1024), "1 KiB");
  EXPECT_EQ(format_size(1536), "1.5 KiB");
  EXPECT_EQ(format_size(std::int64_t{64} << 20), "64 MiB");
  EXPECT_EQ(format_size(std::int64_t{1023} << 20), "1023 MiB");
  EXPECT_EQ(format_size(std::int64_t{5} << 40), "5 TiB");
}

}  // namespace
}  // namespace lockstep::core
