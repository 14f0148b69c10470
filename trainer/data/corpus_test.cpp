#include "trainer/data/corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "testing/core/fixtures.h"
#include "testing/core/refusal.h"

namespace lockstep::trainer {
namespace {

class CorpusTest : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string error_of(const std::vector<std::string>& files, std::int64_t length) {
    return core::refusal_of([&] { Corpus::of_files(files, length); });
  }

  core::TemporaryFolder folder_;
};

std::vector<std::int32_t> tokens_of(const TokenText& text) {
  std::vector<std::int32_t> tokens(text.size());
  text.copy(0, tokens);
  return tokens;
}

std::string text_of(const TokenText& text) {
  const std::vector<std::int32_t> tokens = tokens_of(text);
  return {tokens.begin(), tokens.end()};
}

TEST_F(CorpusTest, TheLastTenthIsForValidation) {
  std::string text;
  for (int k = 0; k < 1000; ++k) text += static_cast<char>('a' + k * 7 % 26);
  const Corpus corpus = Corpus::of_files(std::vector{file("t", text)}, 8);
  EXPECT_EQ(text_of(corpus.training()), text.substr(0, 900));
  EXPECT_EQ(text_of(corpus.validation()), text.substr(900));
  EXPECT_EQ(corpus.name(), folder_ / "t");
}

TEST_F(CorpusTest, ValidationHasASequenceAtLeast) {
  const Corpus corpus = Corpus::of_files(std::vector{file("t", std::string(100, 'x'))}, 30);
  EXPECT_EQ(corpus.validation().size(), 31u);
  EXPECT_EQ(corpus.training().size(), 69u);
}

TEST_F(CorpusTest, FilesAreJoinedInOrderAndAnyByteIsAToken) {
  std::string every;
  for (int k = 0; k < 256; ++k) every += static_cast<char>(k);
  const Corpus corpus = Corpus::of_files(std::vector{file("a", "one "), file("b", every), file("c", "three")}, 2);
  EXPECT_EQ(text_of(corpus.training()) + text_of(corpus.validation()), "one " + every + "three");
  EXPECT_EQ(corpus.name(), "3 files from " + (folder_ / "a") + " on");
}

TEST_F(CorpusTest, CopiesOutliveTheFirst) {
  std::optional<Corpus> first = Corpus::of_files(std::vector{file("t", std::string(100, 'q'))}, 4);
  const Corpus second = *first;
  first.reset();
  EXPECT_EQ(text_of(second.training()), std::string(90, 'q'));
}

TEST_F(CorpusTest, WhatCannotBeReadIsRefusedByName) {
  const std::string missing = folder_ / "missing";
  EXPECT_EQ(error_of({missing}, 8),
            "cannot read " + missing + ": No such file or directory; allowed: a file of text that can be read");
  const std::string empty = file("empty", "");
  EXPECT_EQ(error_of({empty}, 8), "cannot read " + empty + ": it is empty; allowed: a file of text that can be read");
  EXPECT_EQ(error_of({file("good", "text"), empty}, 8),
            "cannot read " + empty + ": it is empty; allowed: a file of text that can be read");
  EXPECT_EQ(error_of({folder_.path()}, 8),
            "cannot read " + folder_.path() + ": it is not a regular file; allowed: a file of text that can be read");
}

TEST_F(CorpusTest, AShortTextIsRefusedWithTheBytesThatItNeeds) {
  const std::string path = file("short", std::string(17, 'x'));
  EXPECT_EQ(error_of({path}, 8), path +
                                     " is too short: 17 bytes; sequences of 8 tokens need at least 18 (one sequence "
                                     "and its last target, for training and for validation)");
  const Corpus corpus = Corpus::of_files(std::vector{file("enough", std::string(18, 'x'))}, 8);
  EXPECT_EQ(corpus.training().size(), 9u);
  EXPECT_EQ(corpus.validation().size(), 9u);
}

TEST_F(CorpusTest, SyntheticTextNeedsNoFile) {
  const Corpus corpus = Corpus::synthetic(3, 10'000, 64);
  EXPECT_EQ(corpus.training().size(), 9000u);
  EXPECT_EQ(text_of(corpus.training()), text_of(Corpus::synthetic(3, 10'000, 64).training()));
}

// ---- files of tokens

std::vector<std::int32_t> ramp(std::int32_t first, std::int32_t count, std::int32_t words) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t k = 0; k < count; ++k) tokens.push_back((first + 7 * k) % words);
  return tokens;
}

class TokenFileTest : public CorpusTest {
 protected:
  std::string tokens_file(const std::string& name, const std::vector<std::int32_t>& tokens, std::int64_t words) const {
    TokenFileWriter writer(folder_ / name, words);
    const std::span<const std::int32_t> all = tokens;
    writer.write(all.first(all.size() / 3));
    writer.write(all.subspan(all.size() / 3));
    writer.commit();
    return folder_ / name;
  }
};

TEST_F(TokenFileTest, SeveralOfUnlikeWidthsAreOneText) {
  const auto narrow = ramp(1, 501, 65536);
  const auto wide = ramp(2, 500, 128256);
  const std::vector<std::string> files{tokens_file("a", narrow, 65536), tokens_file("b", wide, 65537)};
  EXPECT_EQ(std::filesystem::file_size(files[0]), 1024 + 2 * 501u);
  EXPECT_EQ(std::filesystem::file_size(files[1]), 1024 + 4 * 500u);
  const Corpus corpus = Corpus::of_files(files, 30);
  EXPECT_FALSE(corpus.is_bytes());
  std::vector<std::int32_t> all = narrow;
  all.insert(all.end(), wide.begin(), wide.end());
  EXPECT_EQ(tokens_of(corpus.all()), all);
  EXPECT_EQ(tokens_of(corpus.training()), std::vector<std::int32_t>(all.begin(), all.begin() + 901));
  EXPECT_EQ(tokens_of(corpus.validation()), std::vector<std::int32_t>(all.begin() + 901, all.end()));
  std::vector<std::int32_t> across(20);  // from one file into the next
  corpus.all().copy(490, across);
  EXPECT_EQ(across, std::vector<std::int32_t>(all.begin() + 490, all.begin() + 510));
  EXPECT_EQ(tokens_of(corpus.all().part(495, 10)), std::vector<std::int32_t>(all.begin() + 495, all.begin() + 505));
}

// By hand, as llm.c's dev/data/data_common.py writes it.
TEST_F(TokenFileTest, TheFormatIsThatOfLlmC) {
  std::string bytes(1024, '\0');
  const std::int32_t magic = 20240520;
  const std::int32_t version = 1;
  const std::int32_t count = 40;
  std::memcpy(bytes.data(), &magic, 4);
  std::memcpy(bytes.data() + 4, &version, 4);
  std::memcpy(bytes.data() + 8, &count, 4);
  for (std::uint16_t token = 50200; token < 50240; ++token) {
    bytes.push_back(static_cast<char>(token & 0xFF));
    bytes.push_back(static_cast<char>(token >> 8));
  }
  const auto tokens = tokens_of(Corpus::of_files(std::vector{file("t", bytes)}, 4).all());
  EXPECT_EQ(tokens.front(), 50200);
  EXPECT_EQ(tokens.back(), 50239);
  const std::string written = tokens_file("again", tokens, 50257);
  std::ifstream in(written, std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), bytes);
}

TEST_F(TokenFileTest, WhatDoesNotFitItsHeaderIsRefused) {
  const std::string path = tokens_file("t", ramp(0, 100, 1000), 1000);
  std::filesystem::resize_file(path, 1024 + 199);
  EXPECT_EQ(error_of({path}, 4), path +
                                     ": its header has 100 tokens of 2 bytes, and 199 bytes follow it; allowed: as "
                                     "many as its header states");
  const std::string text = file("text", std::string(3000, 'x'));
  const std::string good = tokens_file("good", ramp(0, 100, 1000), 1000);
  EXPECT_EQ(error_of({good, text}, 4), text + " has no tokens, and " + good + " has; allowed: files of one kind");
  EXPECT_EQ(error_of({text, good}, 4), good + " has tokens, and " + text + " is text; allowed: files of one kind");
  EXPECT_EQ(error_of({tokens_file("few", ramp(0, 17, 1000), 1000)}, 8),
            folder_ / "few" +
                " is too short: 17 tokens; sequences of 8 tokens need at least 18 (one sequence and its last target, "
                "for training and for validation)");
  TokenFileWriter many(folder_ / "many", 1000);
  const std::int32_t value = 1;
  EXPECT_THROW(many.write(std::span(&value, std::size_t{1} << 31)), core::Error) << "refused before they are read";
}

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
  // A token that was never counted, after one that was: add-one gives it 1 / 258, the other 8 / 260 / 10.
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
