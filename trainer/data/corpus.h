// The text that a model is trained on: text files, whose bytes are tokens or which a tokenizer encodes, or token files
// (token_file.h). The last tenth is kept for validation.
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
  // See synthetic.h.
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

}  // namespace lockstep::trainer
