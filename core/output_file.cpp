#include "core/output_file.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "core/error.h"

namespace lockstep::core {
namespace {

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

// "process 123", the owner of another process's lock on this open file; "another process" if the system does not report
// it. A line of /proc/locks: "1: FLOCK  ADVISORY  WRITE 123 fe:00:4567 0 EOF", where 4567 is the file's inode.
std::string lock_owner(int descriptor) {
  struct stat status {};
  std::ifstream locks("/proc/locks");
  if (fstat(descriptor, &status) != 0) return "another process";
  const std::string inode = ":" + std::to_string(status.st_ino);
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, mode, access, file;
    long process = 0;
    words >> number >> kind >> mode >> access >> process >> file;
    if (kind == "FLOCK" && file.ends_with(inode) && process > 0) return "process " + std::to_string(process);
  }
  return "another process";
}

// Returns false if the system refuses, with the reason in errno.
bool write_at_offset(int descriptor, std::size_t at, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = pwrite(descriptor, text.data(), text.size(), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    at += static_cast<std::size_t>(written);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

bool is_named(int descriptor, const std::string& path) {
  struct stat open_file {};
  struct stat named {};
  return fstat(descriptor, &open_file) == 0 && stat(path.c_str(), &named) == 0 && open_file.st_ino == named.st_ino &&
         open_file.st_dev == named.st_dev;
}

}  // namespace

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

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
  if (!write_at_offset(descriptor_, end_, text)) fail(errno);
  end_ += text.size();
}

void AtomicFile::write_over_beginning(std::string_view text) {
  LOCKSTEP_CHECK(descriptor_ >= 0, "the file is closed");
  if (!write_at_offset(descriptor_, 0, text)) fail(errno);
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

std::string partial_path(const std::string& path) {
  std::filesystem::path name(path);
  const std::string extension = name.extension().string();
  return name.replace_extension(".partial" + extension).string();
}

// A file that is locked, but has lost its name since it was opened, is one that another program has just completed.
RecordFile::RecordFile(std::string path) : path_(std::move(path)), partial_(partial_path(path_)) {
  refuse_special_target(path_);
  for (;;) {
    descriptor_ = open(partial_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor_ < 0) {
      throw usage_error("cannot write " + path_ + ": " + system_reason(errno) +
                        "; allowed: a file in an existing, writable folder");
    }
    if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) break;  // else locked, or without locks
    if (is_named(descriptor_, partial_)) return;
    close(descriptor_);
  }
  const std::string owner = lock_owner(descriptor_);
  close(descriptor_);
  throw usage_error("cannot write " + path_ + ": " + owner + " is writing it; allowed: another name");
}

RecordFile::~RecordFile() {
  if (descriptor_ < 0) return;
  struct stat status {};
  const bool earlier_stays = num_lines_ == 0 && fstat(descriptor_, &status) == 0 && status.st_size > 0;
  if (num_lines_ <= 1 && !earlier_stays) unlink(partial_.c_str());
  close(descriptor_);
}

void RecordFile::fail(int error_number) {
  throw Error(Failure::internal, "cannot write " + path_ + ": " + system_reason(error_number));
}

// Cuts off bytes that an earlier run or a longer line left, before the first line and after each line, so that the file
// always consists of whole lines.
void RecordFile::write_at(std::size_t at, const std::string& line) {
  LOCKSTEP_CHECK(descriptor_ >= 0, "the file is closed");
  if (num_lines_ == 0 && ftruncate(descriptor_, 0) != 0) fail(errno);
  const std::string text = line + "\n";
  if (!write_at_offset(descriptor_, at, text)) {
    const int error_number = errno;
    if (ftruncate(descriptor_, static_cast<off_t>(at)) != 0) fail(errno);
    end_ = at;
    fail(error_number);
  }
  last_begins_ = at;
  const std::size_t new_end = at + text.size();
  if (new_end < end_ && ftruncate(descriptor_, static_cast<off_t>(new_end)) != 0) fail(errno);
  end_ = new_end;
}

void RecordFile::write_line(const std::string& line) {
  write_at(end_, line);
  ++num_lines_;
}

void RecordFile::rewrite_line(const std::string& line) {
  LOCKSTEP_CHECK(num_lines_ > 0, "there is a line to rewrite");
  write_at(last_begins_, line);
}

void RecordFile::overwrite_line(std::size_t begins, std::size_t size, std::string line) {
  LOCKSTEP_CHECK(line.size() <= size && begins + size < end_, "the new line fits into the old one");
  line.resize(size, ' ');
  if (!write_at_offset(descriptor_, begins, line)) fail(errno);
}

void RecordFile::commit() {
  LOCKSTEP_CHECK(descriptor_ >= 0, "the file is closed");
  if (num_lines_ == 0 && ftruncate(descriptor_, 0) != 0) fail(errno);
  if (fsync(descriptor_) != 0) fail(errno);
  if (rename(partial_.c_str(), path_.c_str()) != 0) fail(errno);
  close(descriptor_);
  descriptor_ = -1;
  sync_folder(folder_of(path_));  // the rename itself must survive a crash, too
}

FolderLock::FolderLock(const std::string& flag, const std::string& folder) {
  const std::string name = flag + " " + folder + ": ";
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) throw usage_error(name + "cannot be made: " + failed.message());
  descriptor_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) throw usage_error(name + "cannot be read: " + system_reason(errno));
  if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;  // or there are no such locks
  const std::string owner = lock_owner(descriptor_);
  close(descriptor_);
  throw usage_error(name + owner + " is writing to it; allowed: another folder, or this one when it has ended");
}

FolderLock::~FolderLock() {
  close(descriptor_);
}

}  // namespace lockstep::core
