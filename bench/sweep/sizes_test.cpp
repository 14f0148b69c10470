#include "bench/sweep/sizes.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep::sweep {
namespace {

using collectives::Kind;
using core::DType;

TEST(Sizes, Factor) {
  EXPECT_EQ(sizes_of({8, 64, 1, 2}), (std::vector<std::int64_t>{8, 16, 32, 64}));
  EXPECT_EQ(sizes_of({8, 100, 1, 4}), (std::vector<std::int64_t>{8, 32}));
}

TEST(Sizes, StepOnlyWithoutFactor) {
  EXPECT_EQ(sizes_of({8, 20, 5, 1}), (std::vector<std::int64_t>{8, 13, 18}));
  EXPECT_EQ(sizes_of({0, 10, 5, 1}), (std::vector<std::int64_t>{0, 5, 10}));
  EXPECT_EQ(sizes_of({8, 20, 5, 2}), (std::vector<std::int64_t>{8, 16}));
}

TEST(Sizes, OneSizeNeedsNoStep) {
  EXPECT_EQ(sizes_of({64, 64, 0, 1}), std::vector<std::int64_t>{64});
  EXPECT_EQ(sizes_of({0, 0, 0, 2}), std::vector<std::int64_t>{0});
  EXPECT_THROW(sizes_of({0, 8, 1, 2}), core::Error);
}

TEST(BlockCount, IsTheWholeMessageWithOneBlock) {
  EXPECT_EQ(block_count(Kind::all_reduce, 10, DType::f32, 4), 2);
  EXPECT_EQ(block_count(Kind::broadcast, 64, DType::f64, 4), 8);
  EXPECT_EQ(block_count(Kind::send_recv, 7, DType::i8, 4), 7);
}

TEST(BlockCount, IsRoundedDownTo16BytesWithABlockARank) {
  for (Kind kind :
       {Kind::all_gather, Kind::reduce_scatter, Kind::all_to_all, Kind::gather, Kind::scatter, Kind::hypercube}) {
    EXPECT_EQ(block_count(kind, 63, DType::f32, 4), 0);
    EXPECT_EQ(block_count(kind, 64, DType::f32, 4), 4);
    EXPECT_EQ(block_count(kind, 127, DType::f32, 4), 4);
    EXPECT_EQ(block_count(kind, 100, DType::i8, 3), 32);
    EXPECT_EQ(block_count(kind, 100, DType::f64, 3), 4);
  }
}

}  // namespace
}  // namespace lockstep::sweep
