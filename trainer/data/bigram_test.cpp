#include "trainer/data/bigram.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "core/random.h"

namespace lockstep::trainer {
namespace {

constexpr std::int64_t kBytes = 256;

std::vector<std::int32_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

TEST(Bigram, UnigramByHand) {
  // a 3 times, b once: P(a) = 4 / 260, P(b) = 2 / 260; of the validation text the first token is given.
  EXPECT_NEAR(unigram_entropy_nats(bytes("aaba"), bytes("bab"), kBytes),
              -(std::log(4.0 / 260) + std::log(2.0 / 260)) / 2, 1e-12);
}

TEST(Bigram, BigramByHandIsTheLowerOfTwoSmoothings) {
  // Pairs of "abab": ab twice, ba once; a stands before another token twice.
  const double around_unigram = (2 + 8 * (3.0 / 260)) / (2 + 8);
  EXPECT_NEAR(bigram_entropy_nats(bytes("abab"), bytes("ab"), kBytes), -std::log(around_unigram), 1e-12);
  // A token that was never counted, behind one that was: add-one gives it 1 / 258, the other 8 / 260 / 10.
  EXPECT_NEAR(bigram_entropy_nats(bytes("abab"), bytes("az"), kBytes), -std::log(1.0 / 258), 1e-12);
}

TEST(Bigram, NoiseCannotBePredictedAndOrderCan) {
  core::Random random(5);
  std::vector<std::int32_t> noise(300'000);
  for (auto& b : noise) b = static_cast<std::int32_t>(random.below(4));
  const Tokens all = noise;
  EXPECT_NEAR(bigram_entropy_nats(all.first(200'000), all.subspan(200'000), kBytes), std::log(4.0), 0.001);
  EXPECT_NEAR(unigram_entropy_nats(all.first(200'000), all.subspan(200'000), kBytes), std::log(4.0), 0.002);
  std::vector<std::int32_t> cycle(20'000);
  for (std::size_t k = 0; k < cycle.size(); ++k) cycle[k] = static_cast<std::int32_t>(k % 4);
  EXPECT_LT(bigram_entropy_nats(cycle, cycle, kBytes), 0.01);
  EXPECT_NEAR(unigram_entropy_nats(cycle, cycle, kBytes), std::log(4.0), 0.02);
}

TEST(Bigram, UnigramProbabilitiesSumToOne) {
  double sum = 0;
  for (int b = 0; b < 256; ++b) {
    const std::array<std::int32_t, 2> text = {'q', b};
    sum += std::exp(-unigram_entropy_nats(bytes("xy"), text, kBytes));
  }
  EXPECT_NEAR(sum, 1, 1e-9);
}

}  // namespace
}  // namespace lockstep::trainer
