#include "trainer/checkpoint/pieces.h"

#include <gtest/gtest.h>

#include "core/random.h"

namespace lockstep::trainer {
namespace {

TEST(Pieces, ColumnsOfAMatrixAreOneRow) {
  std::vector<Interval> columns;
  for (std::int64_t row = 0; row < 768; ++row) columns.push_back({row * 3072 + 1024, 1024});
  const std::vector<IntervalRow> rows = fold(columns);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0], (IntervalRow{{1024, 1024}, 3072, 768}));
  EXPECT_EQ(unfold(rows), columns);
}

TEST(Pieces, FoldingLosesNothing) {
  core::Random random(1);
  for (int k = 0; k < 500; ++k) {
    std::vector<Interval> intervals;
    std::int64_t begin = 0;
    for (std::uint64_t n = random.below(12); n > 0; --n) {
      begin += static_cast<std::int64_t>(random.below(3));
      const auto count = 1 + static_cast<std::int64_t>(random.below(2));
      intervals.push_back({begin, count});
      begin += count;
    }
    EXPECT_EQ(unfold(fold(intervals)), intervals);
  }
}

// Against a set of elements.
TEST(Pieces, AnIntervalSetGivesWhatIsNew) {
  core::Random random(8);
  for (int k = 0; k < 300; ++k) {
    IntervalSet set;
    std::vector<bool> there(30);
    for (int n = 0; n < 12; ++n) {
      const std::uint64_t begin = random.below(25);
      const std::uint64_t count = random.below(6);
      std::vector<Interval> expected;
      for (std::uint64_t e = begin; e < begin + count; ++e) {
        if (there[e]) continue;
        there[e] = true;
        const auto element = static_cast<std::int64_t>(e);
        if (!expected.empty() && expected.back().begin + expected.back().count == element) {
          ++expected.back().count;
        } else {
          expected.push_back({element, 1});
        }
      }
      EXPECT_EQ(set.add({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(count)}), expected);
    }
  }
}

TEST(Pieces, WholeIsEveryElementOnce) {
  EXPECT_EQ(why_not_whole({{0, 4}, {4, 6}}, 10), "");
  EXPECT_EQ(why_not_whole({{4, 6}, {0, 4}}, 10), "");
  EXPECT_EQ(why_not_whole({}, 0), "");
  EXPECT_EQ(why_not_whole({}, 3), "element 0 is missing");
  EXPECT_EQ(why_not_whole({{1, 9}}, 10), "element 0 is missing");
  EXPECT_EQ(why_not_whole({{0, 4}, {5, 5}}, 10), "element 4 is missing");
  EXPECT_EQ(why_not_whole({{0, 4}}, 10), "element 4 is missing");
  EXPECT_EQ(why_not_whole({{0, 6}, {4, 6}}, 10), "element 4 is there twice");
  EXPECT_EQ(why_not_whole({{0, 10}, {0, 10}}, 10), "element 0 is there twice");
  EXPECT_EQ(why_not_whole({{0, 11}}, 10), "there are 11 elements instead of 10");
}

// Against counting each element.
TEST(Pieces, WholeAgreesWithCounting) {
  core::Random random(2);
  int whole = 0;
  for (int k = 0; k < 5000; ++k) {
    std::vector<Interval> intervals;
    std::vector<int> times(12);
    for (std::uint64_t n = random.below(4); n > 0; --n) {
      const std::uint64_t begin = random.below(6);
      const std::uint64_t count = 1 + random.below(6 - begin);
      intervals.push_back({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(count)});
      for (std::uint64_t e = begin; e < begin + count; ++e) ++times[e];
    }
    bool once = true;
    for (int e = 0; e < 6; ++e) once = once && times[static_cast<std::size_t>(e)] == 1;
    EXPECT_EQ(why_not_whole(intervals, 6).empty(), once);
    whole += once ? 1 : 0;
  }
  EXPECT_GT(whole, 50);
}

}  // namespace
}  // namespace lockstep::trainer
