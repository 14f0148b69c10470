#include "core/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "core/error.h"

namespace lockstep::core {
namespace {

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string path_of(int descriptor) {
  return "/proc/self/fd/" + std::to_string(descriptor);
}

// Opens a file without a name: it disappears with its process, however that ends. Returns -1 if the system has no such
// files, or no way to name them later.
int open_unnamed(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  if (descriptor < 0 || access(path_of(descriptor).c_str(), F_OK) == 0) return descriptor;
  close(descriptor);
  return -1;
}

}  // namespace

std::string system_reason(int error_number) {
  return std::generic_category().message(error_number);
}

void refuse_special_target(const std::string& target) {
  struct stat status {};
  if (stat(target.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
  throw usage_error("cannot write " + target + ": it exists and is not a regular file; allowed: a new file's name");
}

AtomicFile::AtomicFile(const std::string& target)
    : target_(target), partial_(target + ".partial-" + std::to_string(getpid())) {
  refuse_special_target(target_);
  descriptor_ = open_unnamed(folder_of(target_));
  if (descriptor_ >= 0) return;
  is_named_ = true;
  descriptor_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    throw usage_error("cannot write " + target_ + ": " + system_reason(errno) +
                      "; allowed: a file in an existing, writable folder");
  }
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::discard() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  if (is_named_) unlink(partial_.c_str());
  descriptor_ = -1;
}

void AtomicFile::fail(int error_number) {
  discard();
  throw Error(Failure::internal,
              "cannot write " + target_ + ": " + system_reason(error_number) + "; the partial file was removed");
}

void AtomicFile::write(std::string_view text) {
  LOCKSTEP_CHECK(descriptor_ >= 0, "the file is closed");
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AtomicFile::write_over_beginning(std::string_view text) {
  LOCKSTEP_CHECK(descriptor_ >= 0, "the file is closed");
  for (off_t at = 0; !text.empty();) {
    const ssize_t written = pwrite(descriptor_, text.data(), text.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    text.remove_prefix(static_cast<std::size_t>(written));
    at += written;
  }
}

void AtomicFile::commit() {
  LOCKSTEP_CHECK(descriptor_ >= 0, "the file is closed");
  if (fsync(descriptor_) != 0) fail(errno);
  if (!is_named_) {  // renaming replaces an existing file; linking cannot
    const std::string unnamed = path_of(descriptor_);
    if (linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, partial_.c_str(), AT_SYMLINK_FOLLOW) != 0) fail(errno);
    is_named_ = true;
  }
  if (rename(partial_.c_str(), target_.c_str()) != 0) fail(errno);
  close(descriptor_);
  descriptor_ = -1;
  sync_folder(folder_of(target_));  // the rename itself must survive a crash, too
}

void sync_folder(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

}  // namespace lockstep::core
