#include "trainer/data/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "trainer/data/bigram.h"

namespace lockstep::trainer {
namespace {

TEST(Synthetic, IsAFunctionOfItsSeed) {
  EXPECT_EQ(synthetic_text(7, 1000), synthetic_text(7, 1000));
  EXPECT_NE(synthetic_text(7, 1000), synthetic_text(8, 1000));
  const auto text = synthetic_text(7, 1000);
  const auto longer = synthetic_text(7, 2000);
  EXPECT_TRUE(std::equal(text.begin(), text.end(), longer.begin()));
}

TEST(Synthetic, EveryPairHasThreeFollowers) {
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u}) {
    const auto text = synthetic_text(seed, 200'000);
    std::map<std::pair<int, int>, std::set<int>> followers;
    for (std::size_t k = 4; k < text.size(); ++k) followers[{text[k - 2], text[k - 1]}].insert(text[k]);
    for (const auto& [pair, letters] : followers) EXPECT_LE(letters.size(), 3u);
    EXPECT_GT(followers.size(), 150u);  // most of 256 pairs come up
  }
}

// The entropy that is stated, measured by counting three letters.
TEST(Synthetic, HasTheEntropyThatIsStatedAndBigramsDoNotReachIt) {
  const auto text = synthetic_text(1, 400'000);
  std::map<std::pair<int, int>, double> pairs;
  std::map<std::pair<std::pair<int, int>, int>, double> triples;
  for (std::size_t k = 2; k < text.size(); ++k) {
    pairs[{text[k - 2], text[k - 1]}] += 1;
    triples[{{text[k - 2], text[k - 1]}, text[k]}] += 1;
  }
  double nats = 0;
  for (const auto& [triple, count] : triples) nats -= count * std::log(count / pairs.at(triple.first));
  EXPECT_NEAR(nats / static_cast<double>(text.size() - 2), kSyntheticEntropyNats, 0.01);
  const std::vector<std::int32_t> all(text.begin(), text.end());
  const Tokens tokens = all;
  EXPECT_GT(bigram_entropy_nats(tokens.first(360'000), tokens.subspan(360'000), 256), kSyntheticEntropyNats + 1);
}

}  // namespace
}  // namespace lockstep::trainer
