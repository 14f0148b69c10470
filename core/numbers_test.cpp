#include "core/random.h"

#include <array>
#include <set>

#include <gtest/gtest.h>

#include "core/size.h"

namespace lockstep::core {
namespace {

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
