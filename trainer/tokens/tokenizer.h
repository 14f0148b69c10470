// Between text and tokens: bytes as they are, or byte pairs of GPT-2 and of Llama 3, read from the files of Hugging
// Face's tokenizers.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trainer/tokens/byte_pairs.h"
#include "trainer/tokens/words.h"

namespace lockstep::trainer {

// Any thread may use it.
class Tokenizer {
 public:
  // A token a byte, 256 in all.
  static Tokenizer bytes();
  // `path`: tokenizer.json, or vocab.json with merges.txt beside it, or a folder with the one or the others. Throws a
  // usage Error of one line that names the file and what of it is not known here: other models than byte-level byte
  // pairs, other word patterns than those of words.h, a normalizer.
  static Tokenizer of_file(const std::string& path);

  bool is_bytes() const { return pattern_ == kBytes; }
  const std::string& name() const { return name_; }                                  // "bytes", or the path
  std::int32_t size() const { return static_cast<std::int32_t>(bytes_of_.size()); }  // one more than the largest id

  std::vector<std::int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  friend class Encoder;
  friend class TokenizerReader;
  static constexpr int kBytes = -1;

  std::string name_ = "bytes";
  int pattern_ = kBytes;           // a WordPattern
  bool leads_with_blank_ = false;  // a text that begins with no blank gets one (add_prefix_space)
  bool whole_words_ = false;       // a word that is a token is not merged from bytes (ignore_merges)
  TokenIds ids_;
  BytePairs pairs_;
  std::vector<std::string> bytes_of_;  // by id
  // Tokens that are found in the text before words are cut, the longest first; and the bytes with which one begins.
  struct Added {
    std::string content;
    std::int32_t id;
  };
  const Added* added_at(std::string_view text, std::size_t at) const;  // null: none begins there
  std::vector<Added> added_;
  std::array<bool, 256> begins_added_{};
};

// Encodes long texts piece by piece: words that were met before are looked up. For use by one thread.
class Encoder {
 public:
  // Takes tokens in order, some at a time.
  using Sink = std::function<void(std::span<const std::int32_t>)>;

  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Holds no more tokens at a time than a word and a few pages.
  void encode(std::string_view text, const Sink& sink);

 private:
  void encode_between(std::string_view text, const Sink& sink);
  void encode_word(std::string_view word);
  void give(std::size_t at_least, const Sink& sink);  // tokens that wait, if they are so many

  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> waiting_;
  std::unordered_map<std::string, std::vector<std::int32_t>, BytesHash, std::equal_to<>> known_;
};

}  // namespace lockstep::trainer
