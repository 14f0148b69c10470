// A record file that is there from the first record on. Each record is a line, written by one call of the system as
// soon as it is known: whatever stops the program, also a signal that cannot be caught, leaves the records of all that
// was done before.
#pragma once

#include <string>

#include "core/record.h"

namespace lockstep::kernel_bench {

// Not to be shared between threads. Failures throw an Error that names the file and the system's reason.
class RecordLines {
 public:
  // Finds out at once whether the file can be written. What is in it stays until the first record comes.
  explicit RecordLines(const std::string& path);
  ~RecordLines();
  RecordLines(const RecordLines&) = delete;
  RecordLines& operator=(const RecordLines&) = delete;

  template <class Record>
  void write(const Record& record) {
    write_line(core::to_json(record) + "\n");
  }

 private:
  void write_line(const std::string& line);

  std::string path_;
  int descriptor_;
  bool is_begun_ = false;
};

}  // namespace lockstep::kernel_bench
