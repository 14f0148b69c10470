// A file of lines that has its name once it is whole. Until then, and where its program is stopped by whatever signal,
// it is there as far as it has come, under a name that says so.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::core {

// "out/rows.jsonl" is out/rows.partial.jsonl while it grows, so that what takes *.jsonl takes both.
std::string partial_path(const std::string& path);

// Not to be shared between threads. All failures throw an Error that names the file and the system's reason; the lines
// that were whole before stay.
class RecordFile {
 public:
  // Finds out at once whether the partial file can be written and whether no other program writes it. A target that is
  // there and no regular file is refused with a usage Error. What earlier runs have left, under either name, stays
  // until the first line, or commit().
  explicit RecordFile(std::string path);
  ~RecordFile();  // without commit(): a file of one line or none, which has no results, is removed
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  void write_line(const std::string& line);  // `line` without its newline; written by one call of the system
  // Another one in place of the line that was written last, if there is one: for a result that grows.
  void rewrite_line(const std::string& line);
  void commit();  // once; nothing may be written afterwards

 private:
  void write_at(std::size_t at, const std::string& line);
  [[noreturn]] void fail(int error_number);

  std::string path_;
  std::string partial_;
  int descriptor_ = -1;
  std::size_t num_lines_ = 0;
  std::size_t last_begins_ = 0;  // offsets
  std::size_t end_ = 0;
};

}  // namespace lockstep::core
