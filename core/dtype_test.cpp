#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/error.h"

namespace lockstep::core {
namespace {

std::string usage_text(auto parse) {
  try {
    parse();
  } catch (const Error& error) {
    EXPECT_EQ(error.failure(), Failure::usage);
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
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
  EXPECT_EQ(usage_text([] { parse_dtype("f12"); }),
            "unknown datatype 'f12'; allowed: int8 uint8 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 "
            "f8e5m2 all");
  EXPECT_EQ(usage_text([] { parse_reduce_op("mean"); }), "unknown operation 'mean'; allowed: sum prod max min avg all");
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

}  // namespace
}  // namespace lockstep::core
