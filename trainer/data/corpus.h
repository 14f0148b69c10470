// The text that a model is trained on: text files, whose bytes are tokens or which a tokenizer encodes, or token files
// (token_text.h). The last tenth is kept for validation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/token_text.h"
#include "trainer/tokens/tokenizer.h"

namespace lockstep::trainer {

// Copies share the text. Any thread may read it.
class Corpus {
 public:
  // Uses the files one after the other. Token files, and a single file of bytes, are memory-mapped: they take no memory
  // of their own, parts that are never drawn are never read, and they must not shrink meanwhile. Other text is encoded
  // here. `length`: tokens per sequence; each half needs one more. Throws a usage Error that names the file, its tokens
  // and the tokens needed.
  static Corpus of_files(std::span<const std::string> files, std::int64_t length,
                         const Tokenizer& tokenizer = Tokenizer::bytes());
  // Passes on the tokens of such files in order, some at a time, without holding all of them: text is encoded as it is
  // read. Returns the name of the corpus.
  static std::string read_files(std::span<const std::string> files, const Tokenizer& tokenizer,
                                const Encoder::Sink& sink);
  // See below.
  static Corpus synthetic(std::uint64_t seed, std::int64_t bytes, std::int64_t length);

  const std::string& name() const { return name_; }  // "/path/to/text", "3 files from /path/to/text on", "synthetic"
  bool is_bytes() const { return is_bytes_; }        // each byte is a token
  const TokenText& all() const { return text_; }
  TokenText training() const { return text_.part(0, training_tokens_); }
  TokenText validation() const { return text_.part(training_tokens_, text_.size() - training_tokens_); }

 private:
  struct Text {
    std::vector<std::shared_ptr<const void>> owners = {};
    TokenText tokens = {};
    bool is_bytes = true;
  };
  Corpus(std::string name, Text text, std::int64_t length);
  static Text mapped(std::span<const std::string> files);

  std::string name_;
  std::vector<std::shared_ptr<const void>> owners_;  // owners of the text's memory
  TokenText text_;
  std::size_t training_tokens_ = 0;
  bool is_bytes_;
};

// A synthetic text to learn from if no file is given: 16 letters, each drawn depending on the two before it (a Markov
// chain of order 2).
//
// A pair of letters is followed by one letter half of the time, and by a second and a third a quarter of the time each;
// which three is a function of (seed, pair). The best loss that any model can reach is therefore known, ln(2) * 1.5 =
// 1.04 nats per letter, and a model that sees only one letter stays far above it: the model must learn to
// use context.

inline constexpr double kSyntheticEntropyNats = 1.0397207708399179;  // 1.5 ln 2, per letter

std::vector<std::uint8_t> synthetic_text(std::uint64_t seed, std::int64_t bytes);

// Baselines: prediction of one text from counts of another. A trained model that does not beat the bigram baseline has
// not learned to use context.

// Cross entropy in nats per token over the tokens of `validation` after the first. With V words:
//   unigram  Q(b)     = (count(b) + 1) / (all + V)
//   bigram   P(b | a) = (count(a b) + s R(b)) / (count(a) + s): a Dirichlet prior of weight s around R (MacKay and Peto
//            1995, "A hierarchical Dirichlet language model"). The lower of two: s = 8 around the unigram, which is
//            best on text like the counted one, and s = V around a uniform prior, which is add-one and best elsewhere.
using Tokens = std::span<const std::int32_t>;
double unigram_entropy_nats(Tokens training, Tokens validation, std::int64_t words);
double bigram_entropy_nats(Tokens training, Tokens validation, std::int64_t words);

}  // namespace lockstep::trainer
