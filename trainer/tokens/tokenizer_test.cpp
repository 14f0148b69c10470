// Against Hugging Face's tokenizers: fixtures/, which testing/trainer/make_token_fixtures.py writes.
#include "trainer/tokens/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "testing/core/fixtures.h"
#include "testing/core/refusal.h"

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
    std::string text = core::refusal_of([&] { Tokenizer::of_file(file); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text;
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
  expect_refused(refusal([](json& all) { all["normalizer"] = {{"type", "NFC"}}; }), "it has normalizer {");
  expect_refused(refusal([](json& all) { all["pre_tokenizer"] = {{"type", "Metaspace"}}; }), "Metaspace is not known");
  expect_refused(refusal([](json& all) { all["pre_tokenizer"] = nullptr; }), "words are not cut as");
  expect_refused(refusal([](json& all) {
                   const json split = {{"type", "Split"}, {"pattern", {{"Regex", "\\w+"}}}, {"behavior", "Isolated"}};
                   all["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split}}};
                 }),
                 R"(words are cut by {"Regex":"\\w+"})");
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

// The union of the fields of tokenizer.json (tokenizers 0.23.3): a value that is carried or changes no token is taken,
// any other is refused by the field's name.
TEST_F(RefusedTokenizer, EachFieldIsTakenOrNamed) {
  const std::string template_of_end =
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<e>", "type_id": 0}},
          {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<e>": {"id": "<e>", "ids": [601],
          "tokens": ["<|end|>"]}}})";
  struct Row {
    const char* where;  // JSON pointer of the object
    const char* field;
    std::string value;
    bool taken;
  };
  const std::vector<Row> rows = {
      {"", "version", R"("2.0")", false},
      {"", "truncation", R"({"max_length": 2, "strategy": "LongestFirst", "stride": 0, "direction": "Right"})", false},
      {"", "padding", R"({"strategy": {"Fixed": 10}, "pad_id": 0})", false},
      {"", "padding", R"({"strategy": "BatchLongest", "pad_to_multiple_of": 8})", false},
      {"", "padding", R"({"strategy": "BatchLongest", "pad_to_multiple_of": null, "pad_id": 0, "pad_token": "!"})",
       true},
      {"", "normalizer", R"({"type": "Lowercase"})", false},
      {"", "normalizer", R"({"type": "Sequence", "normalizers": []})", true},
      {"", "normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFKC"}]})", false},
      {"", "post_processor", R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false})", true},
      {"", "post_processor", template_of_end, true},
      {"", "post_processor", R"({"type": "Sequence", "processors": []})", true},
      {"", "post_processor", R"({"type": "Sequence", "processors": [)" + template_of_end + "]}", true},
      {"", "post_processor", R"({"type": "Sequence", "processors": [)" + template_of_end + "," + template_of_end + "]}",
       false},
      {"", "post_processor", R"({"type": "RobertaProcessing", "sep": ["</s>", 601], "cls": ["<s>", 600]})", true},
      {"", "post_processor", R"({"type": "BertProcessing", "sep": ["</s>", 9999], "cls": ["<s>", 600]})", false},
      {"", "post_processor", R"({"type": "Other"})", false},
      {"", "decoder", "null", true},
      {"", "decoder", R"({"type": "WordPiece", "prefix": "##", "cleanup": true})", false},
      {"", "next_year", "1", false},
      {"/model", "type", R"("WordLevel")", false},
      {"/model", "dropout", "0.1", false},
      {"/model", "dropout", "0.0", true},
      {"/model", "unk_token", R"("!")", true},
      {"/model", "continuing_subword_prefix", R"("##")", false},
      {"/model", "continuing_subword_prefix", R"("")", true},
      {"/model", "end_of_word_suffix", R"("</w>")", false},
      {"/model", "end_of_word_suffix", R"("")", true},
      {"/model", "fuse_unk", "true", true},
      {"/model", "byte_fallback", "true", true},  // no byte lacks a token
      {"/model", "ignore_merges", "true", true},
      {"/model", "next_year", R"("x")", false},
      {"/model", "next_year", "false", true},
      {"/added_tokens/0", "single_word", "true", false},
      {"/added_tokens/0", "lstrip", "true", false},
      {"/added_tokens/0", "rstrip", "true", false},
      {"/added_tokens/0", "normalized", "true", true},
      {"/added_tokens/0", "special", "false", true},
      {"/added_tokens/0", "id", "650", false},
      {"/added_tokens/0", "next_year", "true", false},
      {"/pre_tokenizer", "add_prefix_space", "true", true},
      {"/pre_tokenizer", "trim_offsets", "false", true},
      {"/pre_tokenizer", "use_regex", "false", false},
      {"/pre_tokenizer", "next_year", "[1]", false},
      {"", "pre_tokenizer", R"({"type": "Digits", "individual_digits": true})", false},
  };
  for (const Row& row : rows) {
    const std::string found =
        refusal([&](json& all) { all[json::json_pointer(row.where)][row.field] = json::parse(row.value); });
    EXPECT_EQ(found.empty(), row.taken) << row.where << " " << row.field << " " << row.value << ": " << found;
    const std::string named = std::string(row.field) == "use_regex" ? "words are not cut" : row.field;
    if (row.taken || std::string(row.field) == "type") continue;
    EXPECT_NE(found.find(named), std::string::npos) << found;
  }
}

TEST_F(RefusedTokenizer, ASplitIsIsolatedOnlyOnceAndBeforeBytes) {
  const auto found = [&](const char* steps) {
    return refusal([&](json& all) {
      json words = json_of(kFixtures + "/llama3.json").at("pre_tokenizer");
      const json split = words["pretokenizers"][0], bytes = words["pretokenizers"][1];
      words["pretokenizers"] = json::array();
      for (const char step : std::string(steps)) words["pretokenizers"].push_back(step == 'S' ? split : bytes);
      all["pre_tokenizer"] = words;
    });
  };
  EXPECT_EQ(found("SB"), "");
  for (const char* const steps : {"SSB", "BS", "SBB", "BB"}) {
    EXPECT_NE(found(steps).find("pre_tokenizer has a further"), std::string::npos) << steps << found(steps);
  }
  for (const auto& setting : std::vector<std::pair<std::string, json>>{{"behavior", "Removed"}, {"invert", true}}) {
    expect_refused(refusal([&](json& all) {
                     all["pre_tokenizer"] = json_of(kFixtures + "/llama3.json").at("pre_tokenizer");
                     all["pre_tokenizer"]["pretokenizers"][0][setting.first] = setting.second;
                   }),
                   "pre_tokenizer Split has " + setting.first);
  }
  expect_refused(refusal([](json& all) {
                   const json split = {{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "Isolated"}};
                   all["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split}}};
                 }),
                 R"(words are cut by {"String":" "})");
}

// Token ids as given by tokenizers 0.23.3.
TEST_F(RefusedTokenizer, AddedTokensMergesAndEndsAreThePackages) {
  const auto encoded = [&](const std::string& text, const auto& change) {
    EXPECT_EQ(refusal(change), "");
    return Tokenizer::of_file(folder_ / "t.json").encode(text);
  };
  const auto two_tokens = [](const char* normalized) {
    return [normalized](json& all) {
      json first = all["added_tokens"][0], second = all["added_tokens"][1];
      first["content"] = normalized;
      first["normalized"] = true;
      second["content"] = "<|end|>";
      all["added_tokens"] = {first, second};
    };
  };
  // Those with normalized: false are found first, wherever they begin.
  EXPECT_EQ(encoded("a<|end|>xb", two_tokens("<|end|>x")), (Ids{64, 601, 87, 65}));
  EXPECT_EQ(encoded("ab<|end|>", two_tokens("ab<|end")), (Ids{257, 601}));
  // A merge that is there twice has its last place.
  const auto merges = [](const json& list) {
    return [list](json& all) {
      json bytes = json::object();
      for (const auto& [word, id] : all["model"]["vocab"].items()) {
        if (id < 256) bytes[word] = id;
      }
      bytes["ab"] = 256;
      bytes["bc"] = 257;
      all["model"]["vocab"] = bytes;
      all["model"]["merges"] = list;
      all["added_tokens"] = json::array();
    };
  };
  EXPECT_EQ(encoded("abc", merges({"a b", "b c"})), (Ids{256, 66}));
  EXPECT_EQ(encoded("abc", merges({"#version: 0.2", "a b", "b c", "a b"})), (Ids{64, 257}));
  EXPECT_EQ(refusal([](json& all) {
              all["post_processor"] = {{"type", "RobertaProcessing"}, {"sep", {"</s>", 601}}, {"cls", {"<s>", 600}}};
            }),
            "");
  const Tokenizer roberta = Tokenizer::of_file(folder_ / "t.json");
  EXPECT_EQ(Ids(roberta.before().begin(), roberta.before().end()), Ids{600});
  EXPECT_EQ(Ids(roberta.after().begin(), roberta.after().end()), Ids{601});
}

// Files that transformers reads alongside vocab.json and merges.txt.
TEST_F(RefusedTokenizer, FilesAlongsideAVocabularyAreTakenOrNamed) {
  for (const char* const name : {"vocab.json", "merges.txt"}) {
    std::filesystem::copy(kFixtures + "/" + name, folder_ / name);
  }
  const auto with_config = [&](const char* config) {
    std::ofstream(folder_ / "tokenizer_config.json") << config;
    return refusal_of(folder_.path());
  };
  EXPECT_EQ(with_config(R"({"tokenizer_class": "GPT2Tokenizer", "model_max_length": 1024, "add_prefix_space": true,
    "added_tokens_decoder": {"600": {"content": "<s>", "normalized": false, "special": true}}})"),
            "");
  const Tokenizer tokenizer = Tokenizer::of_file(folder_.path());
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("cat")), " cat");
  EXPECT_EQ(tokenizer.encode("<s>"), Ids{600});
  for (const char* const field : {"do_lower_case", "add_bos_token", "add_eos_token"}) {
    EXPECT_NE(with_config(("{\"" + std::string(field) + "\": true}").c_str()).find(field), std::string::npos);
  }
  EXPECT_NE(with_config(R"({"tokenizer_class": "CLIPTokenizer"})").find("tokenizer_class"), std::string::npos);
  with_config("{}");
  std::ofstream(folder_ / "added_tokens.json") << R"({"<s>": 600})";
  EXPECT_NE(refusal_of(folder_.path()).find("added_tokens.json: has tokens that"), std::string::npos);
  std::filesystem::remove(folder_ / "added_tokens.json");
  json vocabulary = json_of(kFixtures + "/vocab.json");
  vocabulary["!</w>"] = 600;
  vocabulary["~</w>"] = 601;
  std::ofstream(folder_ / "vocab.json") << vocabulary;
  EXPECT_NE(refusal_of(folder_.path()).find("end_of_word_suffix"), std::string::npos);
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
