#include "core/size.h"

#include <gtest/gtest.h>

namespace lockstep::core {
namespace {

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
