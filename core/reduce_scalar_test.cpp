#include "core/reduce_scalar.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "core/narrow_float.h"

namespace lockstep::core {
namespace {

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

}  // namespace
}  // namespace lockstep::core
