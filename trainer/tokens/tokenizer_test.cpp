// Against Hugging Face's tokenizers: fixtures/, which make_fixtures.py writes.
#include "trainer/tokens/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "testing/core/fixtures.h"

namespace lockstep::trainer {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

const std::string kFixtures = LOCKSTEP_TOKEN_FIXTURES;

json json_of(const std::string& file) {
  return json::parse(std::ifstream(file, std::ios::binary));
}

TEST(Tokenizer, EncodesAsHuggingFacesDoes) {
  const json fixture = json_of(kFixtures + "/encodings.json");
  const auto texts = fixture.at("texts").get<std::vector<std::string>>();
  EXPECT_GT(texts.size(), 100u);
  for (const auto& [name, expected] : fixture.at("ids").items()) {
    const Tokenizer tokenizer = Tokenizer::of_file(std::string(kFixtures).append("/").append(name));
    Encoder encoder(tokenizer);  // its words are known from text to text
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto ids = expected.at(i).get<Ids>();
      EXPECT_EQ(tokenizer.encode(texts[i]), ids) << name << ": " << texts[i];
      Ids again;
      encoder.encode(texts[i],
                     [&](std::span<const std::int32_t> some) { again.insert(again.end(), some.begin(), some.end()); });
      EXPECT_EQ(again, ids) << name << ": " << texts[i];
      const bool led = name == "led.json" && !texts[i].empty() && texts[i].front() != ' ';
      EXPECT_EQ(tokenizer.decode(ids), (led ? " " : "") + texts[i]) << name;
    }
  }
}

TEST(Tokenizer, AFolderHasOneOrTheOther) {
  const Tokenizer tokenizer = Tokenizer::of_file(kFixtures);  // vocab.json and merges.txt
  EXPECT_EQ(tokenizer.encode("the cat"), Tokenizer::of_file(kFixtures + "/vocab.json").encode("the cat"));
  EXPECT_EQ(tokenizer.size(), 600);
  EXPECT_FALSE(tokenizer.is_bytes());
}

TEST(Tokenizer, BytesAreThemselves) {
  const Tokenizer bytes = Tokenizer::bytes();
  EXPECT_TRUE(bytes.is_bytes());
  EXPECT_EQ(bytes.size(), 256);
  std::string every;
  for (int byte = 0; byte < 256; ++byte) every.push_back(static_cast<char>(byte));
  const Ids ids = bytes.encode(every);
  for (std::int32_t k = 0; k < 256; ++k) EXPECT_EQ(ids[static_cast<std::size_t>(k)], k);
  EXPECT_EQ(bytes.decode(ids), every);
}

// Bytes that are no UTF-8 are text all the same: each is a token at least.
TEST(Tokenizer, AnyBytesComeBack) {
  std::string every = "\xff\xfe broken \xe2\x82 and \xc0\xaf \xed\xa0\x80 \xf8";
  for (int byte = 0; byte < 256; ++byte) every.push_back(static_cast<char>(byte));
  for (const char* name : {"/gpt2.json", "/llama3.json"}) {
    const Tokenizer tokenizer = Tokenizer::of_file(kFixtures + name);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(every)), every) << name;
  }
}

TEST(Tokenizer, LongWordsTakeNoSquareOfTheirLength) {
  const Tokenizer tokenizer = Tokenizer::of_file(kFixtures + "/gpt2.json");
  const std::string word(1 << 20, 'x');
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(word)), word);
}

class RefusedTokenizer : public testing::Test {
 protected:
  // The refusal of gpt2.json when it is changed.
  template <class Change>
  std::string refusal(const Change& change) const {
    json all = json_of(kFixtures + "/gpt2.json");
    change(all);
    std::ofstream(folder_ / "t.json") << all;
    return refusal_of(folder_ / "t.json");
  }
  std::string refusal_of(const std::string& file) const {
    try {
      Tokenizer::of_file(file);
    } catch (const core::Error& error) {
      EXPECT_EQ(error.failure(), core::Failure::usage);
      std::string text = error.what();
      EXPECT_EQ(text.find('\n'), std::string::npos) << text;
      return text;
    }
    return "";
  }
  void expect_refused(const std::string& found, const std::string& part) const {
    EXPECT_EQ(found.rfind((folder_ / "t.json") + ": ", 0), 0u) << found;
    EXPECT_NE(found.find(part), std::string::npos) << found;
  }

  core::TemporaryFolder folder_;
};

TEST_F(RefusedTokenizer, WhatIsNotKnownIsNamed) {
  EXPECT_EQ(refusal([](json&) {}), "");
  expect_refused(refusal([](json& all) { all["model"]["type"] = "Unigram"; }), "not a byte-pair encoding");
  expect_refused(refusal([](json& all) { all["model"]["byte_fallback"] = true; }), "byte_fallback is true");
  expect_refused(refusal([](json& all) { all["normalizer"] = {{"type", "NFC"}}; }), "has a normalizer");
  expect_refused(refusal([](json& all) { all["pre_tokenizer"] = {{"type", "Metaspace"}}; }), "Metaspace is not known");
  expect_refused(refusal([](json& all) { all["pre_tokenizer"] = nullptr; }), "words are not cut as");
  expect_refused(refusal([](json& all) {
                   const json split = {{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}};
                   all["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split}}};
                 }),
                 "words are cut by '\\w+'");
  expect_refused(refusal([](json& all) { all["model"]["merges"].push_back("no token"); }), "'no token'");
  expect_refused(refusal([](json& all) { all["model"]["vocab"].erase("!"); }), "byte 33 is not a token");
  expect_refused(refusal([](json& all) { all["model"]["vocab"]["\u4e16"] = 900; }), "characters for bytes");
  expect_refused(refusal([](json& all) { all["model"]["vocab"]["!"] = -1; }), "token id -1");
  expect_refused(refusal([](json& all) { all["added_tokens"][0]["lstrip"] = true; }), "has lstrip");
  expect_refused(refusal([](json& all) {
                   all["added_tokens"][0]["content"] = "a\nb";
                   all["added_tokens"][0]["lstrip"] = true;
                 }),
                 "'a?b' has lstrip");
}

TEST_F(RefusedTokenizer, FilesThatAreNoneAreNamed) {
  EXPECT_NE(refusal_of(folder_ / "missing").find("cannot be read"), std::string::npos);
  std::ofstream(folder_ / "t.json") << "{";
  expect_refused(refusal_of(folder_ / "t.json"), "not JSON");
  std::filesystem::copy(kFixtures + "/vocab.json", folder_ / "vocab.json");
  EXPECT_NE(refusal_of(folder_.path()).find("merges.txt: cannot be read"), std::string::npos);
}

// A long text comes in pieces, and no word is cut.
TEST(Tokenizer, GivesTokensOfALongTextSomeAtATime) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += " word" + std::to_string(i);
  const Tokenizer tokenizer = Tokenizer::of_file(std::string(LOCKSTEP_TOKEN_FIXTURES) + "/llama3.json");
  Ids all;
  std::size_t pieces = 0;
  Encoder(tokenizer).encode(text, [&](std::span<const std::int32_t> some) {
    EXPECT_LE(some.size(), (std::size_t{1} << 14) + 16);
    all.insert(all.end(), some.begin(), some.end());
    ++pieces;
  });
  EXPECT_GT(pieces, 2u);
  EXPECT_EQ(all, tokenizer.encode(text));
  EXPECT_EQ(tokenizer.decode(all), text);
}

}  // namespace
}  // namespace lockstep::trainer
