#include "trainer/checkpoint/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "trainer/checkpoint/crc32.h"

namespace lockstep::trainer {
namespace {

core::Error cannot_read(const std::string& path, const std::string& why) {
  return core::usage_error("cannot read " + path + ": " + why);
}

std::string reason(int error_number) {
  return std::generic_category().message(error_number);
}

std::int64_t bytes_of(const std::string& path, int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) throw cannot_read(path, reason(errno));
  if (!S_ISREG(status.st_mode)) throw cannot_read(path, "it is not a regular file");
  return status.st_size;
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw cannot_read(path, reason(errno));
  try {
    bytes_ = bytes_of(path, descriptor_);
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_) {}

void InputFile::read(std::int64_t begin, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = pread(descriptor_, into.data(), into.size(), begin);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw cannot_read(path_, reason(errno));
    if (got == 0) {
      throw core::Error(core::Failure::wrong_data, path_ + " is truncated: it ends at byte " + std::to_string(begin));
    }
    begin += got;
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

std::string read_text(const std::string& path) {
  const InputFile file(path);
  std::string text(static_cast<std::size_t>(file.bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::uint32_t crc32_of(const InputFile& file) {
  constexpr std::int64_t kBlockBytes = 1 << 20;
  std::vector<std::byte> block(static_cast<std::size_t>(std::min(kBlockBytes, file.bytes())));
  Crc32 crc;
  for (std::int64_t begin = 0; begin < file.bytes(); begin += kBlockBytes) {
    const std::span part =
        std::span(block).first(static_cast<std::size_t>(std::min(kBlockBytes, file.bytes() - begin)));
    file.read(begin, part);
    crc.add(part);
  }
  return crc.value();
}

}  // namespace lockstep::trainer
