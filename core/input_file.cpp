#include "core/input_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"
#include "core/output_file.h"

namespace lockstep::core {
namespace {

Error cannot_read(const std::string& path, const std::string& why) {
  return usage_error("cannot read " + path + ": " + why);
}

std::int64_t bytes_of(const std::string& path, int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) throw cannot_read(path, system_reason(errno));
  if (!S_ISREG(status.st_mode)) throw cannot_read(path, "it is not a regular file");
  return status.st_size;
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path), descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw cannot_read(path, system_reason(errno));
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
    if (got < 0) throw cannot_read(path_, system_reason(errno));
    if (got == 0) {
      throw Error(Failure::wrong_data, path_ + " is truncated: it ends at byte " + std::to_string(begin));
    }
    begin += got;
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

std::shared_ptr<const void> InputFile::mapped() const {
  const auto size = static_cast<std::size_t>(bytes_);
  void* const address = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (address == MAP_FAILED) throw cannot_read(path_, system_reason(errno));
  return {address, [size](void* mapping) { munmap(mapping, size); }};
}

}  // namespace lockstep::core
