// Tokenizers: text to tokens and back, by way of characters, words, and the byte pairs that are merged within a word.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::trainer {

// Cuts text into the words within which byte pairs are merged: what tokenizers call pre-tokenisation. Each pattern is a
// regular expression of its model, whose first alternative that matches is taken:
//   gpt2    's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//           (https://github.com/openai/gpt-2, src/encoder.py)
//   llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|
//           \s+(?!\S)|\s+     (https://github.com/meta-llama/llama3, llama/tokenizer.py)

enum class WordPattern : std::uint8_t { gpt2, llama3 };

// The regular expression in the form of tokenizer.json.
std::string_view expression_of(WordPattern pattern);

// Every byte is in exactly one word; one that belongs to no character of UTF-8 is a word by itself. Letters, numbers
// and spaces are as in Unicode 16, which Hugging Face's tokenizers 0.23.3 has, or as in PCRE2 if it is newer.
void for_each_word(WordPattern pattern, std::string_view text, const std::function<void(std::string_view)>& use);

// Byte-pair encoding of a word (Sennrich, Haddow, Birch 2016, arXiv:1508.07909; on bytes: Radford et al. 2019, section
// 2.2): of all neighbours that a merge joins, the first merge in the list joins its own, leftmost first, until
// none is left.

// Finds tokens of a vocabulary by their bytes.
struct BytesHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using TokenIds = std::unordered_map<std::string, std::int32_t, BytesHash, std::equal_to<>>;

class BytePairs {
 public:
  BytePairs() = default;
  // Two tokens that a merge joins, the first merge first; the joined token has an id of its own.
  struct Merge {
    std::int32_t left;
    std::int32_t right;
    std::int32_t joined;
  };
  BytePairs(const std::array<std::int32_t, 256>& id_of_byte, std::span<const Merge> merges);

  // Appends the tokens of a word.
  void encode(std::string_view word, std::vector<std::int32_t>& to) const;

 private:
  struct Join {
    std::int32_t rank;
    std::int32_t joined;
  };
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U | static_cast<std::uint32_t>(right);
  }
  const Join* find(std::int32_t left, std::int32_t right) const;

  std::array<std::int32_t, 256> id_of_byte_{};
  std::unordered_map<std::uint64_t, Join> joins_;
};

// Converts between text and tokens: bytes as they are, or byte pairs of GPT-2 and Llama 3, read from files of Hugging
// Face's tokenizers.

// Any thread may use it.
class Tokenizer {
 public:
  // One token per byte, 256 in all.
  static Tokenizer bytes();
  // `path`: tokenizer.json, or vocab.json with merges.txt in its folder, or a folder with either. Throws a usage Error
  // of one line that names the file and the field that would change tokens and is not supported: other models than
  // byte-level byte pairs, other word patterns than WordPattern's, a normalizer, and every field that is not known.
  static Tokenizer of_file(const std::string& path);

  bool is_bytes() const { return pattern_ == kBytes; }
  const std::string& name() const { return name_; }                                  // "bytes", or the path
  std::int32_t size() const { return static_cast<std::int32_t>(bytes_of_.size()); }  // one more than the largest id

  // Tokens that the post-processor puts before and after a text, such as <|begin_of_text|>. encode() leaves them out,
  // as Hugging Face's does with add_special_tokens=False.
  std::span<const std::int32_t> before() const { return before_; }
  std::span<const std::int32_t> after() const { return after_; }

  std::vector<std::int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const std::int32_t> tokens) const;

 private:
  friend class Encoder;
  friend class TokenizerReader;
  static constexpr int kBytes = -1;

  std::string name_ = "bytes";
  int pattern_ = kBytes;           // a WordPattern
  bool leads_with_blank_ = false;  // add_prefix_space: a text that does not begin with a blank gets one
  bool whole_words_ = false;       // ignore_merges: a word that is a token is not merged from bytes
  TokenIds ids_;
  BytePairs pairs_;
  std::vector<std::string> bytes_of_;  // by id
  std::vector<std::int32_t> before_, after_;
  // Tokens that are found in the text before it is cut into words, longest first, and the bytes that may begin one.
  // Those that the normalizer does not see (normalized: false) are found first, the others in the text between them.
  struct Added {
    std::string content;
    std::int32_t id;
  };
  struct AddedTokens {
    const Added* at(std::string_view text, std::size_t at) const;  // nullptr: none begins there
    std::vector<Added> all;
    std::array<bool, 256> begins{};
  };
  std::array<AddedTokens, 2> added_;  // [normalized]
};

// Encodes long texts piece by piece and caches words. For use by one thread.
class Encoder {
 public:
  // Takes tokens in order, some at a time.
  using Sink = std::function<void(std::span<const std::int32_t>)>;

  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Holds at most a word and a few pages of tokens at a time.
  void encode(std::string_view text, const Sink& sink);

 private:
  void encode_added(std::string_view text, std::size_t normalized, const Sink& sink);
  void encode_between(std::string_view text, const Sink& sink);
  void encode_word(std::string_view word);
  void give(std::size_t at_least, const Sink& sink);  // passes on pending tokens if there are at least this many

  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> waiting_;
  std::unordered_map<std::string, std::vector<std::int32_t>, BytesHash, std::equal_to<>> known_;
};

}  // namespace lockstep::trainer
