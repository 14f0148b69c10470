#include "trainer/data/corpus.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "trainer/data/synthetic.h"

namespace lockstep::trainer {
namespace {

core::Error cannot_read(const std::string& file, const std::string& why) {
  return core::usage_error("cannot read " + file + ": " + why + "; allowed: a file of text that can be read");
}

std::string reason(int error_number) {
  return std::generic_category().message(error_number);
}

struct Text {
  std::shared_ptr<const void> owner;
  std::span<const std::uint8_t> bytes;
};

// Closes the file whatever happens: a mapping needs no descriptor.
class Descriptor {
 public:
  explicit Descriptor(const std::string& file) : number_(open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (number_ < 0) throw cannot_read(file, reason(errno));
  }
  ~Descriptor() { close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

Text map(const std::string& file) {
  const Descriptor descriptor(file);
  struct stat status {};
  if (fstat(descriptor.number(), &status) != 0) throw cannot_read(file, reason(errno));
  if (!S_ISREG(status.st_mode)) throw cannot_read(file, "it is no regular file");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) throw cannot_read(file, "it is empty");
  void* const address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.number(), 0);
  if (address == MAP_FAILED) throw cannot_read(file, reason(errno));
  std::shared_ptr<const void> owner(address, [size](void* mapped) { munmap(mapped, size); });
  return {std::move(owner), {static_cast<const std::uint8_t*>(address), size}};
}

Text owned(std::vector<std::uint8_t> bytes) {
  const auto owner = std::make_shared<const std::vector<std::uint8_t>>(std::move(bytes));
  return {owner, *owner};
}

Text joined(std::span<const std::string> files) {
  std::vector<std::uint8_t> all;
  for (const std::string& file : files) {
    const Text text = map(file);
    all.insert(all.end(), text.bytes.begin(), text.bytes.end());
  }
  return owned(std::move(all));
}

std::string name_of(std::span<const std::string> files) {
  if (files.size() == 1) return files.front();
  return std::to_string(files.size()) + " files from " + files.front() + " on";
}

}  // namespace

Corpus::Corpus(std::string name, std::shared_ptr<const void> owner, std::span<const std::uint8_t> text,
               std::int64_t length)
    : name_(std::move(name)), owner_(std::move(owner)), text_(text) {
  LOCKSTEP_CHECK(length > 0, "a sequence has at least one token");
  const auto sequence = static_cast<std::size_t>(length) + 1;  // with the target of its last token
  if (text_.size() < 2 * sequence) {
    throw core::usage_error(name_ + " is too short: " + std::to_string(text_.size()) + " bytes; sequences of " +
                            std::to_string(length) + " tokens need at least " + std::to_string(2 * sequence) +
                            " (one sequence and its last target, for training and for validation)");
  }
  training_bytes_ = text_.size() - std::max(text_.size() / 10, sequence);
}

Corpus Corpus::of_files(std::span<const std::string> files, std::int64_t length) {
  LOCKSTEP_CHECK(!files.empty(), "a corpus of no file");
  Text text = files.size() == 1 ? map(files.front()) : joined(files);
  return {name_of(files), std::move(text.owner), text.bytes, length};
}

Corpus Corpus::synthetic(std::uint64_t seed, std::int64_t bytes, std::int64_t length) {
  Text text = owned(synthetic_text(seed, bytes));
  return {"synthetic", std::move(text.owner), text.bytes, length};
}

}  // namespace lockstep::trainer
