// Files that appear whole or not at all, files of records, and folders that one process at a time writes to.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::core {

// A file that appears whole or not at all: written without a name (or, if the file system has no such files, next to
// its target under another name), synced, then given its name.

// For one thread at a time. Unless commit() has returned, the destructor leaves the target as it was and no other file
// behind. All failures throw an Error that names the target and the system's reason.
class AtomicFile {
 public:
  // Checks at once whether the folder can be written. A target that is not a regular file (a device, a folder) is
  // refused with a usage Error, because renaming would replace it.
  explicit AtomicFile(const std::string& target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view text);
  // Overwrites the beginning of the file, for a header that describes the data that follows.
  void write_over_beginning(std::string_view text);
  void commit();  // once; nothing may be written afterwards

 private:
  void discard();
  [[noreturn]] void fail(int error_number);

  std::string target_;
  std::string partial_;  // temporary name in the target's folder
  bool is_named_ = false;
  int descriptor_ = -1;
  std::size_t end_ = 0;  // offset at which the next text begins
};

// Folder of a file: "." for a mere name.
std::string folder_of(const std::string& path);

// Returns the system's text for an error number.
std::string system_reason(int error_number);

// Throws a usage Error if the target exists and is not a regular file.
void refuse_special_target(const std::string& target);

// Syncs a folder: names created or removed in it survive a crash of the machine from here on. Does nothing on file
// systems that cannot sync folders.
void sync_folder(const std::string& folder);

// A file of lines that gets its name when it is complete. Until then, and if its program is stopped by any signal, the
// lines so far are in a file whose name marks it as partial.

// "out/rows.jsonl" is out/rows.partial.jsonl while it grows; the pattern *.jsonl matches both.
std::string partial_path(const std::string& path);

// For one thread at a time. All failures throw an Error that names the file and the system's reason; lines that were
// complete before remain.
class RecordFile {
 public:
  // Checks at once that the partial file can be written and that no other program is writing it. An existing target
  // that is not a regular file is refused with a usage Error. Files that earlier runs left under either name stay until
  // the first line, or until commit().
  explicit RecordFile(std::string path);
  ~RecordFile();  // without commit(): a file with at most one line has no results and is removed
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  void write_line(const std::string& line);  // `line` without newline; one write system call
  // Replaces the line that was written last, if there is one, for a result that grows.
  void rewrite_line(const std::string& line);
  std::size_t end() const { return end_; }  // offset at which the next line begins
  // Overwrites an earlier line of `size` bytes, without newline, with one that is not longer, and fills up with spaces.
  void overwrite_line(std::size_t begins, std::size_t size, std::string line);
  void commit();  // call once; nothing may be written afterwards

 private:
  void write_at(std::size_t at, const std::string& line);
  [[noreturn]] void fail(int error_number);

  std::string path_;
  std::string partial_;
  int descriptor_ = -1;
  std::size_t num_lines_ = 0;
  std::size_t last_begins_ = 0;  // offset of the last line
  std::size_t end_ = 0;
};

// A folder that no other process may write to meanwhile. The lock is the system's, on the folder itself (flock): it
// ends with its process, however that ends, and leaves no file. A file system without such locks (some network file
// systems) protects nothing, and neither is another host kept out.
class FolderLock {
 public:
  // Makes the folder if there is none. `flag` is what the user named the folder with. If another process has the
  // folder, throws a usage Error that names flag, folder and process.
  FolderLock(const std::string& flag, const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

}  // namespace lockstep::core
