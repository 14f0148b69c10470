#include "workload/flat_bucket.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::workload {
namespace {

TEST(FlatBucket, ParametersBeginAtAGrain) {
  const FlatBucket bucket = lay_out(std::vector<std::int64_t>{1, 64, 33}, 1);
  ASSERT_EQ(bucket.places.size(), 3U);
  EXPECT_EQ(bucket.places[0].end, 1);
  EXPECT_EQ(bucket.places[1].begin, 32);
  EXPECT_EQ(bucket.places[2].begin, 96);
  EXPECT_EQ(bucket.places[2].end, 129);
  EXPECT_EQ(bucket.elems, 160);
}

TEST(FlatBucket, ShardsAreEqualAndEndAtAGrain) {
  for (std::int32_t shards = 1; shards <= 9; ++shards) {
    const FlatBucket bucket = lay_out(std::vector<std::int64_t>{1000, 7}, shards);
    EXPECT_LT(bucket.elems - 1031, shards * kFlatGrain);
    std::int64_t next = 0;
    for (std::int32_t shard = 0; shard < shards; ++shard) {
      const FlatRange range = bucket.shard(shards, shard);
      EXPECT_EQ(range.begin, next);
      EXPECT_EQ(range.count() % kFlatGrain, 0);
      next = range.end;
    }
    EXPECT_EQ(next, bucket.elems);
  }
}

TEST(FlatBucket, RangesHaveInCommonWhatBothHold) {
  EXPECT_EQ(common_of({0, 10}, {5, 20}).count(), 5);
  EXPECT_TRUE(common_of({0, 10}, {10, 20}).empty());
  EXPECT_TRUE(common_of({0, 10}, {15, 20}).empty());
}

}  // namespace
}  // namespace lockstep::workload
