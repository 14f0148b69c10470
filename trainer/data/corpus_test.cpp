#include "trainer/data/corpus.h"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/folder_for_tests.h"

namespace lockstep::trainer {
namespace {

class CorpusTest : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& text) const {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string error_of(const std::vector<std::string>& files, std::int64_t length) {
    try {
      Corpus::of_files(files, length);
    } catch (const core::Error& error) {
      EXPECT_EQ(error.failure(), core::Failure::usage);
      return error.what();
    }
    return "";
  }

  core::TemporaryFolder folder_;
};

std::string text_of(std::span<const std::uint8_t> bytes) {
  return {bytes.begin(), bytes.end()};
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
            "cannot read " + folder_.path() + ": it is no regular file; allowed: a file of text that can be read");
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

}  // namespace
}  // namespace lockstep::trainer
