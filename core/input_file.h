// A file that is read at any place, or mapped. Errors name the file and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lockstep::core {

// Reading from several threads is fine.
class InputFile {
 public:
  // Throws a usage Error if there is no such regular file or it cannot be read.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t bytes() const { return bytes_; }  // when it was opened
  // Throws Error(wrong_data) if the file ends before.
  void read(std::int64_t begin, std::span<std::byte> into) const;
  // All of the file, which is not empty, for as long as the result lives; this may end before.
  std::shared_ptr<const void> mapped() const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
};

}  // namespace lockstep::core
