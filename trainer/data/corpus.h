// The text that a model is trained on: text files, whose bytes are tokens or which a tokenizer encodes, or token files
// of llm.c's format. The last tenth is kept for validation. Also the synthetic text, the losses of baselines, and the
// choice of the sequences of each step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/output_file.h"
#include "trainer/tokens/tokenizer.h"

namespace lockstep::trainer {

// A view of a long sequence of tokens in memory or in memory-mapped files, in parts: as bytes, or as 16 or 32 bits
// each. The maker owns the memory.

class TokenText {
 public:
  TokenText() = default;
  explicit TokenText(std::span<const std::uint8_t> bytes) { append({bytes.data(), bytes.size(), 1}); }

  // `width`: bytes per token (1, 2 or 4), little-endian.
  struct Part {
    const void* data;
    std::size_t count;
    int width;
  };
  void append(const Part& part);

  std::size_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  TokenText part(std::size_t first, std::size_t count) const;
  // Copies tokens first, first + 1, ... until `to` is full.
  void copy(std::size_t first, std::span<std::int32_t> to) const;
  // The whole text if its tokens are bytes in one part; otherwise empty.
  std::span<const std::uint8_t> bytes() const;

 private:
  std::vector<Part> parts_;
  std::vector<std::size_t> ends_;  // end of each part, in tokens
};

// Token files in the format of llm.c (https://github.com/karpathy/llm.c, dev/data/data_common.py): 256 numbers of 32
// bits, the first three of which are a magic number, a version and the number of tokens, followed by the tokens,
// little-endian:
//   20240520, 1, n   16 bits each
//   20240801, 7, n   32 bits each

// Returns the tokens of a file's bytes, or nothing if it does not begin like a token file. Throws a usage Error that
// begins with `file` if it does but its version or length is wrong.
std::optional<TokenText::Part> tokens_in(const std::string& file, std::span<const std::uint8_t> bytes);

// Writes a token file sequentially, with any number of tokens. The file gets its name with commit().
class TokenFileWriter {
 public:
  // Uses 16 bits per token if they can hold the ids of `words` words.
  TokenFileWriter(const std::string& path, std::int64_t words);
  // Throws a usage Error beyond 2^31 - 1 tokens, the most that the header can state.
  void write(std::span<const std::int32_t> tokens);
  std::int64_t written() const { return written_; }
  void commit();

 private:
  std::string path_;
  core::AtomicFile file_;
  bool narrow_;
  std::int64_t written_ = 0;
};

// Copies share the text. Any thread may read it.
class Corpus {
 public:
  // Concatenates the files. Token files, and a single file of bytes, are memory-mapped: they take no memory
  // of their own, parts that are never drawn are never read, and they must not shrink meanwhile. Other text is encoded
  // here. `length`: tokens per sequence; each half needs one more. Throws a usage Error that names the file, its tokens
  // and the tokens needed.
  static Corpus of_files(std::span<const std::string> files, std::int64_t length,
                         const Tokenizer& tokenizer = Tokenizer::bytes());
  // Passes on the tokens of such files in order, some at a time, without holding all tokens: text is encoded as it is
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
// 1.04 nats per letter, and a model that sees only one letter stays far above it: the model must learn to use context.

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

// Selects the sequences of a step. Pure functions of (seed, step, number of the sample in the global batch): a sample
// is the same on whatever rank, in whatever microbatch or row it is, so that all layouts train on the same global
// batches.

// The first token of a sample: uniform over all positions where `length` tokens and a last target fit, with
// replacement.
std::int64_t sample_begin(std::uint64_t seed, std::int64_t step, std::int64_t sample, std::int64_t text_tokens,
                          std::int64_t length);

// Validation uses windows at fixed positions, spread evenly from the first token to the last.
std::int64_t max_windows(std::int64_t text_tokens, std::int64_t length);  // that do not overlap
std::int64_t window_begin(std::int64_t window, std::int64_t windows, std::int64_t text_tokens, std::int64_t length);

// These fill [rows, length] each; rows are tokens.size() / length. A target is the following token. draw_samples:
// samples first_sample, first_sample + 1, ... of a step, one per row.
void draw_samples(const TokenText& text, std::uint64_t seed, std::int64_t step, std::int64_t first_sample,
                  std::int64_t length, std::span<std::int32_t> tokens, std::span<std::int32_t> targets);
// Windows first_window, first_window + 1, ... of `windows`, one per row.
void take_windows(const TokenText& text, std::int64_t first_window, std::int64_t windows, std::int64_t length,
                  std::span<std::int32_t> tokens, std::span<std::int32_t> targets);

}  // namespace lockstep::trainer
