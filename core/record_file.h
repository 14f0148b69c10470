// A file of lines that gets its name when it is complete. Until then, and if its program is stopped by any signal, the
// lines so far are in a file whose name says that it is partial.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::core {

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

}  // namespace lockstep::core
