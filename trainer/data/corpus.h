// The text that a model is trained on. Tokens are its bytes: 256 words, no tokenizer. Its last tenth is kept for
// validation.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lockstep::trainer {

// Copies share the text, which any thread may read.
class Corpus {
 public:
  // The files one after the other. One file is mapped and takes no memory of its own; it must not shrink meanwhile.
  // `length`: tokens a sequence; each half needs one more. Throws a usage Error that names the file, the bytes there
  // and the bytes needed.
  static Corpus of_files(std::span<const std::string> files, std::int64_t length);
  // synthetic.h
  static Corpus synthetic(std::uint64_t seed, std::int64_t bytes, std::int64_t length);

  const std::string& name() const { return name_; }  // "/path/to/text", "3 files from /path/to/text on", "synthetic"
  std::span<const std::uint8_t> training() const { return text_.first(training_bytes_); }
  std::span<const std::uint8_t> validation() const { return text_.subspan(training_bytes_); }

 private:
  Corpus(std::string name, std::shared_ptr<const void> owner, std::span<const std::uint8_t> text, std::int64_t length);

  std::string name_;
  std::shared_ptr<const void> owner_;  // of the text
  std::span<const std::uint8_t> text_;
  std::size_t training_bytes_ = 0;
};

}  // namespace lockstep::trainer
