// The text that a model is trained on: files of text, whose bytes are tokens or which a tokenizer cuts into some, or
// files of tokens (token_file.h). Its last tenth is kept for validation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/token_text.h"
#include "trainer/tokens/tokenizer.h"

namespace lockstep::trainer {

// Copies share the text, which any thread may read.
class Corpus {
 public:
  // The files one after the other. Files of tokens, and one file of bytes, are mapped: they take no memory of their
  // own, what is never drawn is never read, and they must not shrink meanwhile. Other text is encoded here. `length`:
  // tokens a sequence; each half needs one more. Throws a usage Error that names the file, the tokens there and the
  // tokens needed.
  static Corpus of_files(std::span<const std::string> files, std::int64_t length,
                         const Tokenizer& tokenizer = Tokenizer::bytes());
  // Gives the tokens of such files in order, some at a time, without ever holding all of them: text is encoded as it
  // comes. Returns the name of the corpus.
  static std::string read_files(std::span<const std::string> files, const Tokenizer& tokenizer,
                                const Encoder::Sink& sink);
  // synthetic.h
  static Corpus synthetic(std::uint64_t seed, std::int64_t bytes, std::int64_t length);

  const std::string& name() const { return name_; }  // "/path/to/text", "3 files from /path/to/text on", "synthetic"
  bool is_bytes() const { return is_bytes_; }        // a token a byte
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
  std::vector<std::shared_ptr<const void>> owners_;  // of the text
  TokenText text_;
  std::size_t training_tokens_ = 0;
  bool is_bytes_;
};

}  // namespace lockstep::trainer
