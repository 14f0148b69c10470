// Records: what a run was and what it measured, as lines of JSON. docs/record_format.md says what each field means and
// in which unit. core/record_format.py makes the structs, their JSON and that page from docs/record.schema.json, so
// that a field is written in one place. A field that is not known is left empty and becomes null.
#pragma once

#include <optional>
#include <string>

#include "core/provenance.h"
#include "core/record_file.h"
#include "core/record_types.h"

namespace lockstep::core {

// Writes a record file, each record as soon as it is known: whatever stops the program, also a signal that cannot be
// caught, leaves the records of all that was done before, in a file that is named partial (core/record_file.h). Without
// a path no record is asked for, and none is written.
class RecordWriter {
 public:
  explicit RecordWriter(const std::string& path) {
    if (!path.empty()) file_.emplace(path);
  }
  bool is_open() const { return file_.has_value(); }
  template <class Record>
  void write(const Record& record) {
    if (file_) file_->write_line(to_json(record));
  }
  // In place of the last: of a result that grows as its program runs.
  template <class Record>
  void rewrite(const Record& record) {
    if (file_) file_->rewrite_line(to_json(record));
  }
  void commit() {
    if (file_) file_->commit();
  }

 private:
  std::optional<RecordFile> file_;
};

}  // namespace lockstep::core
