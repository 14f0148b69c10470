// A file that is read at any place. Errors name the file and the system's reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::trainer {

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

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
};

std::string read_text(const std::string& path);
std::uint32_t crc32_of(const InputFile& file);

}  // namespace lockstep::trainer
