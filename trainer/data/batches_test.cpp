#include "trainer/data/batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <vector>

#include "core/random.h"

namespace lockstep::trainer {
namespace {

std::vector<std::uint8_t> bytes_of(std::size_t count) {
  std::vector<std::uint8_t> text(count);
  core::Random random(3);
  for (auto& b : text) b = static_cast<std::uint8_t>(random.next());
  return text;
}

struct Rows {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
  Rows(std::int64_t rows, std::int64_t length)
      : tokens(static_cast<std::size_t>(rows * length), -1), targets(tokens.size(), -1) {}
};

// Data-parallel ranks x microbatches x rows of a microbatch, in every way that 24 samples can be shared out.
TEST(Batches, EveryLayoutDrawsTheSameGlobalBatch) {
  const auto bytes = bytes_of(5000);
  const TokenText text(bytes);
  constexpr std::int64_t kLength = 17;
  Rows whole(24, kLength);
  draw_samples(text, 9, 31, 0, kLength, whole.tokens, whole.targets);
  for (const std::int64_t rows : {1, 2, 3, 4, 6, 8, 12}) {
    Rows all(0, kLength);
    for (std::int64_t first = 0; first < 24; first += rows) {
      Rows part(rows, kLength);
      draw_samples(text, 9, 31, first, kLength, part.tokens, part.targets);
      all.tokens.insert(all.tokens.end(), part.tokens.begin(), part.tokens.end());
      all.targets.insert(all.targets.end(), part.targets.begin(), part.targets.end());
    }
    EXPECT_EQ(all.tokens, whole.tokens);
    EXPECT_EQ(all.targets, whole.targets);
  }
}

TEST(Batches, RowsAreTheTextAndTargetsAreTheTokensBehind) {
  const auto bytes = bytes_of(999);
  const TokenText text(bytes);
  constexpr std::int64_t kLength = 40;
  Rows rows(6, kLength);
  draw_samples(text, 1, 2, 10, kLength, rows.tokens, rows.targets);
  for (std::int64_t row = 0; row < 6; ++row) {
    const std::int64_t begin = sample_begin(1, 2, 10 + row, 999, kLength);
    for (std::int64_t k = 0; k < kLength; ++k) {
      const auto at = static_cast<std::size_t>(row * kLength + k);
      EXPECT_EQ(rows.tokens[at], bytes[static_cast<std::size_t>(begin + k)]);
      EXPECT_EQ(rows.targets[at], bytes[static_cast<std::size_t>(begin + k + 1)]);
    }
  }
}

TEST(Batches, SamplesReachEveryPlaceAboutEquallyOften) {
  constexpr std::int64_t kTokens = 60;
  constexpr std::int64_t kLength = 50;  // places 0 to 9
  std::array<int, 10> seen{};
  for (std::int64_t step = 1; step <= 1000; ++step) {
    for (std::int64_t sample = 0; sample < 10; ++sample) {
      ++seen.at(static_cast<std::size_t>(sample_begin(77, step, sample, kTokens, kLength)));
    }
  }
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);  // five standard deviations
}

TEST(Batches, SeedStepAndSampleAllMatter) {
  std::set<std::int64_t> begins;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    for (std::int64_t step = 0; step < 3; ++step) {
      for (std::int64_t sample = 0; sample < 3; ++sample) {
        begins.insert(sample_begin(seed, step, sample, std::int64_t{1} << 40, 8));
      }
    }
  }
  EXPECT_EQ(begins.size(), 27u);
}

TEST(Batches, TheShortestTextHasOnePlace) {
  EXPECT_EQ(sample_begin(1, 1, 1, 9, 8), 0);
  EXPECT_EQ(max_windows(9, 8), 1);
  EXPECT_THROW(sample_begin(1, 1, 1, 8, 8), std::exception);
}

TEST(Batches, WindowsAreSpreadFromTheFirstTokenToTheLast) {
  for (const std::int64_t tokens : {101, 1000, 12345}) {
    for (std::int64_t windows = 2; windows <= max_windows(tokens, 10); ++windows) {
      EXPECT_EQ(window_begin(0, windows, tokens, 10), 0);
      EXPECT_EQ(window_begin(windows - 1, windows, tokens, 10), tokens - 11);
      for (std::int64_t k = 1; k < windows; ++k) {
        const std::int64_t apart = window_begin(k, windows, tokens, 10) - window_begin(k - 1, windows, tokens, 10);
        EXPECT_GE(apart, 10);  // no overlap
        EXPECT_LE(std::abs(apart - (tokens - 11) / (windows - 1)), 1);
      }
    }
  }
}

TEST(Batches, WindowsFillRows) {
  std::vector<std::uint8_t> text(200);
  std::iota(text.begin(), text.end(), std::uint8_t{0});
  Rows rows(3, 9);
  take_windows(TokenText(text), 1, 4, 9, rows.tokens, rows.targets);
  for (std::int64_t row = 0; row < 3; ++row) {
    const auto at = static_cast<std::size_t>(row * 9);
    EXPECT_EQ(rows.tokens[at], window_begin(row + 1, 4, 200, 9));
    EXPECT_EQ(rows.targets[at + 8], window_begin(row + 1, 4, 200, 9) + 9);
  }
}

}  // namespace
}  // namespace lockstep::trainer
